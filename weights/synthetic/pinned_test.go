package synthetic

// pinned are FNV-1a hashes of shapeFor(type) named "pinned" with seed 42.
var pinned = map[string]string{
	"bf16":       "e0c8469982d40d0d",
	"f16":        "cf0425a18ea29e5c",
	"f32":        "a6e69a139bc690ee",
	"f64":        "2f1d5a78c7c63652",
	"f8e4m3":     "f1526dd8990eebca",
	"f8e4m3fnuz": "33ea467e248b93f9",
	"f8e5m2":     "10a8429598090d7e",
	"f8e5m2fnuz": "3700a4fa15b64f82",
	"iq4_nl":     "a8ee9f13897921fc",
	"iq4_xs":     "db0154bb13e43f07",
	"q2_K":       "6fdd068101e52fb5",
	"q3_K":       "c9dd984c3e02f705",
	"q4_0":       "43a4fb527bb28b01",
	"q4_1":       "e4dc7129e96b9023",
	"q4_K":       "6a6eb81f8b24e06c",
	"q5_0":       "2528099b76be5a5f",
	"q5_1":       "d733578084b69f13",
	"q5_K":       "60b52b1e7f764b28",
	"q6_K":       "11aeac569bec7794",
	"q8_0":       "507c74262b2cde51",
	"tq1_0":      "3f514a522374ea52",
	"tq2_0":      "8c500517c0a92807",
}
