package convert

import (
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/greta-project/greta/weights/lora"
	"github.com/greta-project/greta/weights/safetensors"
)

// TestAdapterOfSeveralModalities: an adapter trained on a model of several modalities fits the folder, whose language
// model has the names of one that stands alone; what it changes elsewhere keeps its name.
func TestAdapterOfSeveralModalities(t *testing.T) {
	for _, before := range []string{"model.language_model.", "language_model.model.", "model.text_model."} {
		base, err := safetensors.Open(folderOf(t, "config.json", `{"text_config": {"hidden_size": 4}}`, map[string][]int{
			before + "layers.0.q_proj.weight": {6, 4}, "model.vision.q_proj.weight": {6, 4}}))
		if err != nil {
			t.Fatal(err)
		}
		defer base.Close()
		dir := folderOf(t, "adapter_config.json", `{"peft_type": "LORA", "r": 2}`, map[string][]int{
			"base_model.model." + before + "layers.0.q_proj.lora_A.weight": {2, 4},
			"base_model.model." + before + "layers.0.q_proj.lora_B.weight": {6, 2},
			"base_model.model.model.vision.q_proj.lora_A.weight":           {2, 4},
			"base_model.model.model.vision.q_proj.lora_B.weight":           {6, 2}})
		from, to := filepath.Join(dir, "model.safetensors"), filepath.Join(dir, "adapter_model.safetensors")
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
		a, err := lora.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if a, err = Adapter(a, base); err != nil {
			t.Fatal(err)
		}
		if err := a.Fits(base); err != nil {
			t.Errorf("%s: %v", before, err)
		}
		if a.Find("model.layers.0.q_proj.weight") == nil || a.Find("model.vision.q_proj.weight") == nil {
			t.Errorf("%s: %s, %s", before, a.Pairs[0].Name, a.Pairs[1].Name)
		}
	}
}

// folderOf writes a folder of a JSON file and of tensors of zeros.
func folderOf(t *testing.T, name, text string, shapes map[string][]int) string {
	t.Helper()
	dir := t.TempDir()
	header, at := map[string]any{}, 0
	for name, shape := range shapes {
		size := 4 * shape[0] * shape[1]
		header[name] = map[string]any{"dtype": "F32", "shape": shape, "data_offsets": []int{at, at + size}}
		at += size
	}
	head, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	file = append(append(file, head...), make([]byte, at)...)
	for name, data := range map[string][]byte{name: []byte(text), "model.safetensors": file} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
