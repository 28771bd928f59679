package main

import (
	"github.com/spf13/cobra"

	"github.com/greta-project/greta/models"
)

func (a *app) schemaCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON schema of model files",
		Long: `schema prints the JSON schema that a model file names in its first line, so
that an editor completes and checks it:

  # yaml-language-server: $schema=greta.schema.json`,
		Args: exactly(0, "no argument"),
		RunE: func(*cobra.Command, []string) error {
			_, err := a.out.Write(models.Schema())
			return err
		},
	}
}
