// Package testbrowser starts a real browser for tests of pages; they have the tag clients.
package testbrowser
