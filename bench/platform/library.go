package platform

// library: the vendor's own matrix product, the roof for ours.
var _ = define(Benchmark{
	Name:   "library",
	About:  "the vendor's own matrix product, where its library is there",
	Params: map[string]string{"n": "size of the square matrices"},
	GPU:    func(*GPU) error { return &Missing{"x"} },
	Lacks: map[string]string{"cpu": "greta loads no vendor's library for the processor; greta bench op has its products",
		"vulkan": "Vulkan comes with no library of products"},
})
