package quant

import (
	"testing"

	"github.com/greta-project/greta/tensor"
)

func TestChoose(t *testing.T) {
	llama7 := ModelTraits{Layers: 32, Groups: 1, HasOutput: true}
	llama8 := ModelTraits{Layers: 32, Groups: 4, HasOutput: true}
	llama70 := ModelTraits{Layers: 80, Groups: 8, HasOutput: true, Is70B: true}
	mixtral := ModelTraits{Layers: 32, Groups: 4, Experts: 8, HasOutput: true}
	tied := ModelTraits{Layers: 22, Groups: 8}
	for _, c := range []struct {
		mix, name string
		n         int
		t         ModelTraits
		want      tensor.Type
	}{
		{"q4_k_m", "output.weight", 4096, llama7, tensor.Q6_K},
		{"q4_k_m", "token_embd.weight", 4096, llama7, tensor.Q4_K},
		{"q4_k_m", "token_embd.weight", 2048, tied, tensor.Q6_K},
		{"q4_k_m", "blk.0.attn_v.weight", 4096, llama7, tensor.Q6_K},
		{"q4_k_m", "blk.3.attn_v.weight", 4096, llama7, tensor.Q6_K},
		{"q4_k_m", "blk.4.attn_v.weight", 4096, llama7, tensor.Q4_K},
		{"q4_k_m", "blk.6.ffn_down.weight", 11008, llama7, tensor.Q6_K},
		{"q4_k_m", "blk.7.ffn_down.weight", 11008, llama7, tensor.Q4_K},
		{"q4_k_m", "blk.28.ffn_down.weight", 11008, llama7, tensor.Q6_K},
		{"q4_k_m", "blk.28.ffn_up.weight", 4096, llama7, tensor.Q4_K},
		{"q4_k_m", "blk.14.attn_qkv.weight", 3072, llama7, tensor.Q5_K},
		{"q4_k_m", "blk.40.attn_v.weight", 8192, llama70, tensor.Q5_K},
		{"q4_k_m", "blk.5.attn_v.weight", 4096, mixtral, tensor.Q8_0},
		{"q4_k_m", "blk.5.attn_k.weight", 4096, mixtral, tensor.Q8_0},
		{"q4_k_m", "blk.5.attn_output.weight", 4096, mixtral, tensor.Q5_K},
		{"q4_k_m", "blk.0.ffn_down_exps.weight", 14336, mixtral, tensor.Q6_K},
		{"q4_k_s", "blk.3.attn_v.weight", 4096, llama7, tensor.Q5_K},
		{"q4_k_s", "blk.4.attn_v.weight", 4096, llama7, tensor.Q4_K},
		{"q4_k_s", "blk.3.ffn_down.weight", 11008, llama7, tensor.Q5_K},
		{"q5_k_m", "blk.0.ffn_down.weight", 11008, llama7, tensor.Q6_K},
		{"q5_k_s", "blk.0.ffn_down.weight", 11008, llama7, tensor.Q5_K},
		{"q3_k_m", "blk.1.attn_v.weight", 4096, llama7, tensor.Q5_K},
		{"q3_k_m", "blk.2.attn_v.weight", 4096, llama7, tensor.Q4_K},
		{"q3_k_m", "blk.1.ffn_down.weight", 11008, llama7, tensor.Q5_K},
		{"q3_k_m", "blk.2.ffn_down.weight", 11008, llama7, tensor.Q4_K},
		{"q3_k_m", "blk.2.attn_output.weight", 4096, llama7, tensor.Q4_K},
		{"q3_k_l", "blk.9.ffn_down.weight", 11008, llama7, tensor.Q5_K},
		{"q2_k", "blk.9.attn_v.weight", 4096, llama7, tensor.Q3_K},
		{"q2_k", "blk.9.attn_v.weight", 4096, llama8, tensor.Q4_K},
		{"q2_k", "blk.9.ffn_down.weight", 4096, llama8, tensor.Q3_K},
		{"q2_k", "blk.9.attn_q.weight", 4096, llama8, tensor.Q2_K},
		{"iq4_xs", "blk.9.attn_v.weight", 4096, llama8, tensor.Q5_K},
		{"iq4_nl", "blk.3.ffn_down.weight", 14336, llama8, tensor.Q5_K},
		{"tq1_0", "token_embd.weight", 4096, llama7, tensor.Q4_K},
		{"q4_0", "output.weight", 4096, llama7, tensor.Q6_K},
		{"q4_0", "output.weight", 288, llama7, tensor.Q8_0},
		{"q4_k_m", "output.weight", 288, llama7, tensor.Q8_0},
		{"q8_0", "output.weight", 4096, llama7, tensor.Q8_0},
		{"q8_0", "blk.0.ffn_down.weight", 172, llama7, tensor.F16},
		{"q4_k_m", "blk.0.ffn_down.weight", 288, llama7, tensor.Q8_0},
		{"q4_k_m", "blk.0.attn_q.weight", 288, llama7, tensor.Q5_0},
		{"q5_k_s", "blk.0.attn_q.weight", 288, llama7, tensor.Q5_1},
		{"q2_k_s", "blk.9.attn_q.weight", 288, llama7, tensor.IQ4_NL},
		{"tq2_0", "blk.9.attn_q.weight", 288, llama7, tensor.Q4_0},
		{"f16", "output.weight", 288, llama7, tensor.F16},
		{"bf16", "token_embd.weight", 1, tied, tensor.BF16},
	} {
		m, err := FindRecipe(c.mix)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Type(c.name, c.n, c.t); got != c.want {
			t.Errorf("%s %s [%d]: %s, expected %s", c.mix, c.name, c.n, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range append(RecipeNames(), "Q4_K_M", "q4_k", "q3_k", "Q5_K") {
		if _, err := FindRecipe(name); err != nil {
			t.Error(err)
		}
	}
	if m, _ := FindRecipe("q4_k"); m.Name != "q4_k_m" {
		t.Errorf("q4_k is %s", m.Name)
	}
}
