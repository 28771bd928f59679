package platform

// RoofPrefix is what the names of measured roofs begin with: read, copy and write
// (bytes), fma and product (flops; the parameter type says of what). Each is the
// fastest result of its kind in a run, once more under this name, so that whoever
// wants a device's measured roof finds it without knowing the benchmarks.
const RoofPrefix = "platform/roof/"
