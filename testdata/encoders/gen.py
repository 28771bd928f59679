"""Writes the folders beside it: random tiny encoders, embedders and rerankers in Hugging Face's form, each with
expected.json, what transformers makes of texts in float64. Run: python3 gen.py [FOLDER]
with torch, transformers 5.24 and tokenizers 0.23 from PyPI."""
import json, os, shutil, sys, torch, transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, decoders

root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the of and a b c d e f g h i j k l m n o p q r s t u v w x y z . , ! ? ' - fox dog yes no quick brown over lazy cafe 東 京 п р и в е т " + " ".join("##" + c for c in "abcdefghijklmnopqrstuvwxyz") + " ##ing ##ed ##er ##рив ##ет"
VOCAB = {w: i for i, w in enumerate(dict.fromkeys(WORDS.split()))}
TEXTS = ["The quick brown fox jumps over the lazy dog.", "Café 東京, привет!", "a", "the fox and the dog and the lazy cafe of the dog over and over again, isn't it?", "", "quick quick quick"]
PAIRS = ("the quick fox", ["the lazy dog", "a brown fox jumps over", "", "Café"])
N = len(VOCAB)
coarse = False
small = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=24, vocab_size=N)
decoder = dict(small, num_key_value_heads=1, head_dim=8, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3)


def tokenizer(kind):
    t = Tokenizer(models.WordPiece(VOCAB, unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    if kind == "bert":
        t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    if kind == "roberta":
        t.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    if kind == "last":
        t.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 3)])
    t.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    return t


def spread(model):
    """Weights that do not vanish, norms that are not 1."""
    g = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * (.3 if p.dim() > 1 else .2) + (1 if p.dim() == 1 and "norm" in name.lower() and "weight" in name and not name.startswith("zero") else 0))
    for m in model.modules(): # values that are read from the checkpoint are f32, or bf16
        for p in m.parameters(recurse=False): p.data = (p.data.bfloat16() if coarse else p.data.float()).double()
        if hasattr(m, "create_weight"): m.weight.data = m.create_weight().double()  # waves, which are no weights


def write(name, model, tok, expected, more=None, arch=None, rename=lambda n: n, original=False):
    d = os.path.join(root, name); os.makedirs(d, exist_ok=True)
    config = model.config.to_dict()
    config = {k: v for k, v in config.items() if v is not None and k not in ("transformers_version", "dtype", "id2label", "label2id", "return_dict", "chunk_size_feed_forward", "output_hidden_states", "output_attentions", "problem_type", "is_encoder_decoder", "use_cache", "_name_or_path", "tie_word_embeddings", "initializer_range", "attention_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "cross_attention_hidden_size", "add_cross_attention", "is_decoder")}
    config["architectures"] = [arch or type(model).__name__]
    config.update(more or {})
    json.dump(config, open(os.path.join(d, "config.json"), "w"), indent=1, sort_keys=True)
    if original:  # the names that checkpoints have which transformers renames as it reads them
        model.float().save_pretrained(d)
        os.remove(os.path.join(d, "config.json"))
        path = os.path.join(d, "model.safetensors")
        save_file({rename(n): t for n, t in load_file(path).items()}, path, metadata={"format": "pt"})
        json.dump(config, open(os.path.join(d, "config.json"), "w"), indent=1, sort_keys=True)
    else: save_file({rename(n): (p.detach().bfloat16() if coarse else p.detach().float()).contiguous().clone() for n, p in model.state_dict().items() if "position_ids" not in n and "inv_freq" not in n and "embed_scale" not in n}, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
    tok.save(os.path.join(d, "tokenizer.json"), pretty=False)
    json.dump(expected, open(os.path.join(d, "expected.json"), "w"), ensure_ascii=False, indent=1)


def modules(name, pooling, normalize=False, dense=None):
    d = os.path.join(root, name)
    list_ = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}, {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]
    os.makedirs(os.path.join(d, "1_Pooling"), exist_ok=True)
    json.dump({"word_embedding_dimension": 16, "pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean", "pooling_mode_max_tokens": False, "pooling_mode_lasttoken": pooling == "last"}, open(os.path.join(d, "1_Pooling", "config.json"), "w"))
    for i, w in enumerate(dense or []):
        path = f"{i + 2}_Dense"; os.makedirs(os.path.join(d, path), exist_ok=True)
        list_.append({"idx": len(list_), "name": str(len(list_)), "path": path, "type": "sentence_transformers.models.Dense"})
        json.dump({"in_features": w.shape[1], "out_features": w.shape[0], "bias": False, "activation_function": "torch.nn.modules.linear.Identity"}, open(os.path.join(d, path, "config.json"), "w"))
        save_file({"linear.weight": w.float()}, os.path.join(d, path, "model.safetensors"))
    if normalize: list_.append({"idx": len(list_), "name": str(len(list_)), "path": f"{len(list_)}_Normalize", "type": "sentence_transformers.models.Normalize"})
    json.dump(list_, open(os.path.join(d, "modules.json"), "w"), indent=1)


def pool(h, pooling): return h.mean(0) if pooling == "mean" else h[0] if pooling == "cls" else h[-1]


@torch.no_grad()
def embed(name, model, kind, pooling, normalize=False, dense=None, **kw):
    model = model.double().eval(); spread(model)
    tok, vectors = tokenizer(kind), []
    texts = [t for t in TEXTS if tok.encode(t).ids]
    for t in texts:
        e = tok.encode(t)
        v = pool(model(input_ids=torch.tensor([e.ids]), attention_mask=torch.ones(1, len(e.ids), dtype=torch.long)).last_hidden_state[0], pooling)
        for w in dense or []: v = w.float().double() @ v
        vectors.append((v / v.norm() if normalize else v).tolist())
    write(name, model, tok, {"texts": texts, "pooling": pooling, "vectors": vectors}, **kw)
    if normalize or dense or pooling != "mean": modules(name, pooling, normalize, dense)


@torch.no_grad()
def score(name, model, kind, types=True, **kw):
    model = model.double().eval(); spread(model)
    tok, query, texts = tokenizer(kind), *PAIRS
    scores = []
    for t in texts:
        e = tok.encode(query, t)
        more = {"token_type_ids": torch.tensor([e.type_ids])} if types else {}
        scores.append(torch.sigmoid(model(input_ids=torch.tensor([e.ids]), attention_mask=torch.ones(1, len(e.ids), dtype=torch.long), **more).logits[0, 0]).item())
    write(name, model, tok, {"query": query, "texts": texts, "scores": scores}, **kw)


T = transformers
embed("bert", T.BertModel(T.BertConfig(**small, max_position_embeddings=40), add_pooling_layer=False), "bert", "mean", True)
score("bert_rerank", T.BertForSequenceClassification(T.BertConfig(**small, max_position_embeddings=40, num_labels=1)), "bert")
embed("roberta", T.RobertaModel(T.RobertaConfig(**small, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5), add_pooling_layer=False), "roberta", "cls")
score("xlmr_rerank", T.XLMRobertaForSequenceClassification(T.XLMRobertaConfig(**small, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5, num_labels=1)), "roberta", types=False)
modern = dict(small, max_position_embeddings=64, local_attention=4, global_attn_every_n_layers=3, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3)
embed("modernbert", T.ModernBertModel(T.ModernBertConfig(**modern)), "bert", "mean")
score("modernbert_rerank", T.ModernBertForSequenceClassification(T.ModernBertConfig(**modern, num_labels=1, classifier_pooling="mean")), "bert", types=False)
if hasattr(T, "NomicBertModel"):
    embed("nomic_bert", T.NomicBertModel(T.NomicBertConfig(**small, max_position_embeddings=64), add_pooling_layer=False), "bert", "mean", original=True)
    embed("gte", T.GteModel(T.GteConfig(**small, max_position_embeddings=64), add_pooling_layer=False), "roberta", "cls", original=True, arch="NewModel")
    score("gte_rerank", T.GteForSequenceClassification(T.GteConfig(**small, max_position_embeddings=64, num_labels=1)), "roberta", types=False, original=True, arch="NewForSequenceClassification",
          rename=lambda n: n.replace("gte.", "new."))
embed("qwen3_embedding", T.Qwen3Model(T.Qwen3Config(**decoder)), "last", "last", True, arch="Qwen3ForCausalLM")
g = torch.Generator().manual_seed(9)
embed("gemma3_embedding", T.Gemma3TextModel(T.Gemma3TextConfig(**decoder, query_pre_attn_scalar=8, sliding_window=5, use_bidirectional_attention=True, layer_types=["sliding_attention", "full_attention"])), "bert", "mean", True, dense=[torch.randn(20, 16, generator=g), torch.randn(12, 20, generator=g)])
PAIR = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: {}\n<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")


@torch.no_grad()
def judge(name, model):
    """Scores by the logits of yes and no behind the last token."""
    model = model.double().eval(); spread(model)
    tok, (query, texts), scores = tokenizer(""), PAIRS, []
    for t in texts:
        ids = tok.encode(PAIR.format("Given a web search query, retrieve relevant passages that answer the query", query, t), add_special_tokens=False).ids
        logits = model(input_ids=torch.tensor([ids])).logits[0, -1]
        scores.append(torch.sigmoid(logits[VOCAB["yes"]] - logits[VOCAB["no"]]).item())
    write(name, model, tok, {"query": query, "texts": texts, "scores": scores})


judge("qwen3_rerank", T.Qwen3ForCausalLM(T.Qwen3Config(**dict(decoder, max_position_embeddings=1024))))
embed("llama_embedding", T.LlamaModel(T.LlamaConfig(**decoder)), "last", "last", True)
# From here on models are smaller still, their weights and the texts fewer.
lesser = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=2, intermediate_size=12, vocab_size=N)
TEXTS = [TEXTS[0], TEXTS[3], "quick"]
coarse = True
embed("distilbert", T.DistilBertModel(T.DistilBertConfig(dim=8, n_heads=2, n_layers=2, hidden_dim=12, vocab_size=N, max_position_embeddings=40)), "bert", "cls")
embed("albert", T.AlbertModel(T.AlbertConfig(**dict(lesser, num_hidden_layers=4), embedding_size=6, num_hidden_groups=2, max_position_embeddings=40), add_pooling_layer=False), "bert", "mean")
embed("mpnet", T.MPNetModel(T.MPNetConfig(**lesser, max_position_embeddings=42, layer_norm_eps=1e-5), add_pooling_layer=False), "roberta", "mean", True)
score("electra_rerank", T.ElectraForSequenceClassification(T.ElectraConfig(**lesser, embedding_size=6, max_position_embeddings=40, num_labels=1)), "bert")
score("deberta_rerank", T.DebertaV2ForSequenceClassification(T.DebertaV2Config(**lesser, max_position_embeddings=40, relative_attention=True, position_buckets=6, max_relative_positions=-1, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0, num_labels=1, pooler_hidden_size=8)), "bert", types=False)
decoder = dict(lesser, num_key_value_heads=1, head_dim=4, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3)
embed("mistral_embedding", T.MistralModel(T.MistralConfig(**decoder, sliding_window=6)), "last", "last", True)
embed("gemma2_embedding", T.Gemma2Model(T.Gemma2Config(**decoder, query_pre_attn_scalar=8, sliding_window=6)), "last", "last", True)
embed("eurobert", T.EuroBertModel(T.EuroBertConfig(**dict(decoder, head_dim=None))), "bert", "mean")
t5 = dict(vocab_size=N, d_model=8, d_kv=6, d_ff=12, num_layers=3, num_heads=2, relative_attention_num_buckets=8, relative_attention_max_distance=12)
embed("t5", T.T5EncoderModel(T.T5Config(**t5)), "last", "mean", True)
embed("umt5", T.UMT5EncoderModel(T.UMT5Config(**t5, feed_forward_proj="gated-gelu")), "last", "mean", True)
first = dict(lesser, max_position_embeddings=42, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)
embed("roberta_prelayernorm", T.RobertaPreLayerNormModel(T.RobertaPreLayerNormConfig(**first), add_pooling_layer=False), "roberta", "mean")
score("xlmr_xl_rerank", T.XLMRobertaXLForSequenceClassification(T.XLMRobertaXLConfig(**first, num_labels=1)), "roberta", types=False)
score("roformer_rerank", T.RoFormerForSequenceClassification(T.RoFormerConfig(**lesser, max_position_embeddings=40, embedding_size=6, num_labels=1)), "bert")
embed("deberta_first", T.DebertaModel(T.DebertaConfig(**lesser, max_position_embeddings=40, relative_attention=True, max_relative_positions=5, pos_att_type=["p2c", "c2p"])), "bert", "mean", more={"pos_att_type": "c2p|p2c"})



class First(torch.nn.Module):
    """What a class of passages or questions gives: the first row."""
    def __init__(self, inner): super().__init__(); self.inner, self.config = inner, inner.config
    def forward(self, **kw): return type("", (), {"last_hidden_state": self.inner(**kw).pooler_output[:, None]})
    def state_dict(self): return self.inner.state_dict()


embed("dpr", First(T.DPRContextEncoder(T.DPRConfig(**lesser, max_position_embeddings=40))), "bert", "cls", arch="DPRContextEncoder")
shutil.rmtree(os.path.join(root, "dpr", "1_Pooling")); os.remove(os.path.join(root, "dpr", "modules.json"))  # which the class implies


@torch.no_grad()
def letters(name, config, texts):
    """A vocabulary of letters in vocab.txt, and speeds of heads as they were rounded."""
    model = T.EsmModel(config, add_pooling_layer=False).double().eval(); spread(model)
    model.rotary_embeddings.inv_freq = model.rotary_embeddings.inv_freq.half().double()
    d = os.path.join(root, name); os.makedirs(d, exist_ok=True)
    words = "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X . - <mask>".split()
    open(os.path.join(d, "vocab.txt"), "w").write("\n".join(words))
    tok = T.EsmTokenizer(os.path.join(d, "vocab.txt"))
    tok.save_pretrained(d)
    vectors = [model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids), dtype=torch.long)).last_hidden_state[0].mean(0).tolist() for ids in tok(texts)["input_ids"]]
    config.architectures = ["EsmForMaskedLM"]
    json.dump({k: v for k, v in config.to_diff_dict().items() if k not in ("transformers_version", "dtype")}, open(os.path.join(d, "config.json"), "w"), indent=1, sort_keys=True)
    save_file({f"esm.{n}": p.detach().bfloat16() if "inv_freq" not in n else p.half() for n, p in model.state_dict().items() if "position_ids" not in n}, os.path.join(d, "model.safetensors"), metadata={"format": "pt"})
    json.dump({"texts": texts, "pooling": "mean", "vectors": vectors}, open(os.path.join(d, "expected.json"), "w"), indent=1)


letters("esm", T.EsmConfig(**dict(lesser, vocab_size=28), max_position_embeddings=40, pad_token_id=1, mask_token_id=27, position_embedding_type="rotary", token_dropout=True, layer_norm_eps=1e-5), ["MKTAYIAKQRQISFVKSHFSRQ", "MK<mask>AYI<mask>KQ", "M J"])

# Decoders that score by a form of their own, the parts of which are cut into tokens each for itself.
MORE = {**VOCAB, **{w: N + i for i, w in enumerate("Yes No 1 0 A : B question passage query document *".split())}}


@torch.no_grad()
def formed(name, model, form, score_of, more=None, arch=None):
    model = model.double().eval(); spread(model)
    tok = Tokenizer(models.WordPiece(MORE, unk_token="[UNK]"))
    tok.normalizer, tok.pre_tokenizer, tok.decoder = normalizers.BertNormalizer(lowercase=False), pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    tok.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    (query, texts), scores = PAIRS, []
    for t in texts:
        ids = [i for part in form(query, t) for i in (tok.encode(part, add_special_tokens=False).ids if isinstance(part, str) else [part])]
        scores.append(torch.sigmoid(score_of(model(input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)) if arch is None else torch.zeros(1, 1, len(ids), len(ids), dtype=torch.float64)))).item())
    write(name, model, tok, {"query": query, "texts": texts, "scores": scores}, more=more, arch=arch)
    json.dump({"bos_token": "[CLS]"}, open(os.path.join(root, name, "tokenizer_config.json"), "w"))


class Both(torch.nn.Module):
    """A decoder that reads both ways, and a head behind the mean of all rows."""
    def __init__(self, config):
        super().__init__(); self.config, self.model, self.score = config, T.LlamaModel(config), torch.nn.Linear(config.hidden_size, 1, bias=False)
    def forward(self, input_ids, attention_mask): return self.score(self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state[0].mean(0))[0] / 0.5


decoder = dict(lesser, vocab_size=len(MORE), num_key_value_heads=1, head_dim=6, max_position_embeddings=512, pad_token_id=0, bos_token_id=2, eos_token_id=3)
formed("gemma_rerank", T.GemmaForCausalLM(T.GemmaConfig(**decoder)), lambda q, d: [2, f"A: {q}", "\n", f"B: {d}", "\n", "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a prediction of either 'Yes' or 'No'."], lambda o: o.logits[0, -1, MORE["Yes"]])
formed("llama_bidirec_rerank", Both(T.LlamaConfig(**decoder, attn_implementation="eager")), lambda q, d: [2, f"question:{q} \n \n passage:{d}"], lambda o: o, {"model_type": "llama_bidirec", "pooling": "avg", "temperature": 0.5}, "LlamaBidirectionalForSequenceClassification")
decoder.pop("head_dim")
formed("qwen2_rerank", T.Qwen2ForCausalLM(T.Qwen2Config(**decoder)), lambda q, d: ["<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n", f"query: {q}", f"document: {d}", "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:", "<|im_end|>\n<|im_start|>assistant\n"], lambda o: o.logits[0, -1, MORE["1"]] - o.logits[0, -1, MORE["0"]])

# The published equations, for classes that come with a checkpoint.
import torch.nn.functional as F
class Own:
    """Weights by name, and rows of a text from them."""
    def __init__(self, config, shapes, rows, prefix=""):
        g=torch.Generator().manual_seed(11); self.w={}
        for n,s in shapes.items():
            n1=n.lower(); one=n.endswith("weight") and len(s)==1
            self.w[n]=(torch.randn(s,generator=g)*(.3 if len(s)>1 else .2)+(1 if one else 0)).bfloat16().double()
        self.config,self.rows,self.prefix=config,rows,prefix
def ln(x,w,n,eps=1e-12,b=True): return F.layer_norm(x,x.shape[-1:],w[n+".weight"],w[n+".bias"],eps)
def lin(x,w,n): return F.linear(x,w[n+".weight"],w.get(n+".bias"))
def rot(x,base):
    S,H,d=x.shape; f=base**(-torch.arange(0,d,2,dtype=torch.float64)/d); a=torch.arange(S,dtype=torch.float64)[:,None]*f
    c,s=torch.cat([a.cos()]*2,-1)[:,None],torch.cat([a.sin()]*2,-1)[:,None]
    return x*c+torch.cat([-x[...,d//2:],x[...,:d//2]],-1)*s
def attend(q,k,v,slopes=None):
    S,H,d=q.shape; s=torch.einsum("shd,thd->hst",q,k)/d**.5
    if slopes is not None:
        i=torch.arange(S); s=s-torch.tensor(slopes,dtype=torch.float64)[:,None,None]*(i[:,None]-i[None]).abs()
    return torch.einsum("hst,thd->shd",s.softmax(-1),v).reshape(S,H*d)
D_,H_,F_=8,2,12
def jina2(code):
    sh={"embeddings.word_embeddings.weight":(N,D_),"embeddings.token_type_embeddings.weight":(2,D_),"embeddings.LayerNorm.weight":(D_,),"embeddings.LayerNorm.bias":(D_,)}
    for i in range(2):
        p=f"encoder.layer.{i}."
        for n in ("query","key","value"): sh[p+f"attention.self.{n}.weight"],sh[p+f"attention.self.{n}.bias"]=(D_,D_),(D_,)
        norms=["attention.output.LayerNorm"]+(["attention.self.layer_norm_q","attention.self.layer_norm_k","layer_norm_1","layer_norm_2"] if code else ["mlp.layernorm"])
        for n in norms: sh[p+n+".weight"],sh[p+n+".bias"]=(D_,),(D_,)
        sh[p+"attention.output.dense.weight"],sh[p+"attention.output.dense.bias"]=(D_,D_),(D_,)
        up,down=("mlp.up_gated_layer","mlp.down_layer") if code else ("mlp.gated_layers","mlp.wo")
        sh[p+up+".weight"]=(2*F_,D_); sh[p+down+".weight"],sh[p+down+".bias"]=(D_,F_),(D_,)
    def rows(w,ids):
        x=ln(w["embeddings.word_embeddings.weight"][ids]+w["embeddings.token_type_embeddings.weight"][0],w,"embeddings.LayerNorm")
        for i in range(2):
            p=f"encoder.layer.{i}."; S=len(ids)
            q,k,v=(lin(x,w,p+"attention.self."+n) for n in ("query","key","value"))
            if code: q,k=ln(q,w,p+"attention.self.layer_norm_q"),ln(k,w,p+"attention.self.layer_norm_k")
            a=attend(*(t.view(S,H_,-1) for t in (q,k,v)),slopes=[2**-4,2**-8])
            a=ln(lin(a,w,p+"attention.output.dense")+x,w,p+"attention.output.LayerNorm")
            if code:
                r=ln(x+a,w,p+"layer_norm_1"); u,g=lin(r,w,p+"mlp.up_gated_layer").chunk(2,-1)
                x=ln(r+lin(u*F.gelu(g),w,p+"mlp.down_layer"),w,p+"layer_norm_2")
            else:
                g,u=lin(a,w,p+"mlp.gated_layers").chunk(2,-1)
                x=ln(a+lin(u*F.gelu(g),w,p+"mlp.wo"),w,p+"mlp.layernorm")
        return x
    c=dict(model_type="bert",architectures=["JinaBertModel" if code else "JinaBertForMaskedLM"],hidden_size=D_,num_attention_heads=H_,num_hidden_layers=2,intermediate_size=F_,vocab_size=N,max_position_embeddings=64,position_embedding_type="alibi",feed_forward_type="geglu",hidden_act="gelu",layer_norm_eps=1e-12,emb_pooler="mean",type_vocab_size=2,pad_token_id=0,attn_implementation=None)
    return Own(c,sh,rows)
def flash(kind):
    """Names of flash-attn's BERT: nomic's and jina's."""
    nomic=kind.startswith("nomic"); moe=kind=="nomic_moe"; gated=kind=="nomic"
    st="" if nomic else "roberta."; at="attn" if nomic else "mixer"
    par=".parametrizations.weight.original" if kind=="jina3_lora" else ".weight"
    sh={st+"embeddings.word_embeddings"+par:(N,D_),st+"embeddings.token_type_embeddings"+par:(1 if not gated else 2,D_),st+"emb_ln.weight":(D_,),st+"emb_ln.bias":(D_,)}
    if kind=="jina_reranker": sh[st+"embeddings.position_embeddings.weight"]=(42,D_)
    for i in range(2):
        p=st+f"encoder.layers.{i}."
        sh[p+at+".Wqkv"+par]=(3*D_,D_); sh[p+at+".out_proj"+par]=(D_,D_)
        if not gated: sh[p+at+".Wqkv.bias"],sh[p+at+".out_proj.bias"]=(3*D_,),(D_,)
        if kind=="jina3_lora":
            for n,(o,k) in {at+".Wqkv":(3*D_,D_),at+".out_proj":(D_,D_),"mlp.fc1":(F_,D_),"mlp.fc2":(D_,F_)}.items():
                sh[p+n+".parametrizations.weight.0.lora_A"],sh[p+n+".parametrizations.weight.0.lora_B"]=(5,2,k),(5,o,2)
        for n in ("norm1","norm2"): sh[p+n+".weight"],sh[p+n+".bias"]=(D_,),(D_,)
        if moe and i==1:
            sh[p+"mlp.router.layer.weight"]=(4,D_); sh[p+"mlp.experts.mlp.w1"]=(4*F_,D_); sh[p+"mlp.experts.mlp.w2"]=(4*F_,D_); sh[p+"mlp.experts.bias"]=(D_,)
        elif gated:
            sh[p+"mlp.fc11.weight"]=sh[p+"mlp.fc12.weight"]=(F_,D_); sh[p+"mlp.fc2.weight"]=(D_,F_)
        else:
            sh[p+"mlp.fc1"+par]=(F_,D_); sh[p+"mlp.fc2"+par]=(D_,F_); sh[p+"mlp.fc1.bias"],sh[p+"mlp.fc2.bias"]=(F_,),(D_,)
    if kind=="jina3_lora": sh[st+"embeddings.word_embeddings.parametrizations.weight.0.lora_A"],sh[st+"embeddings.word_embeddings.parametrizations.weight.0.lora_B"]=(5,2,N),(5,D_,2)
    if kind=="jina_reranker":
        for n,o in (("classifier.dense",D_),("classifier.out_proj",1)): sh[n+".weight"],sh[n+".bias"]=(o,D_),(o,)
    base={"nomic":1000.,"nomic_moe":10000.,"jina3_lora":20000.}.get(kind)
    eps=1e-12 if gated else 1e-5
    def rows(w,ids):
        w={n.replace(".parametrizations.weight.original",".weight"):t for n,t in w.items()}
        x=w[st+"embeddings.word_embeddings.weight"][ids]+w[st+"embeddings.token_type_embeddings.weight"][0]
        if kind=="jina_reranker": x=x+w[st+"embeddings.position_embeddings.weight"][2:2+len(ids)]
        x=ln(x,w,st+"emb_ln",eps)
        for i in range(2):
            p=st+f"encoder.layers.{i}."; S=len(ids)
            q,k,v=(t.reshape(S,H_,-1) for t in lin(x,w,p+at+".Wqkv").chunk(3,-1))
            if base: q,k=rot(q,base),rot(k,base)
            x=ln(x+lin(attend(q,k,v),w,p+at+".out_proj"),w,p+"norm1",eps)
            if moe and i==1:
                t,e=F.linear(x,w[p+"mlp.router.layer.weight"]).softmax(-1).topk(2,-1)
                w1,w2=w[p+"mlp.experts.mlp.w1"].view(4,F_,D_),w[p+"mlp.experts.mlp.w2"].view(4,F_,D_)
                m=torch.stack([sum(t[s,j]*(F.gelu(w1[e[s,j]]@x[s])@w2[e[s,j]]) for j in range(2)) for s in range(S)])+w[p+"mlp.experts.bias"]
            elif gated: m=lin(lin(x,w,p+"mlp.fc11")*F.silu(lin(x,w,p+"mlp.fc12")),w,p+"mlp.fc2")
            else: m=lin(F.gelu(lin(x,w,p+"mlp.fc1")),w,p+"mlp.fc2")
            x=ln(x+m,w,p+"norm2",eps)
        if kind=="jina_reranker": return lin(torch.tanh(lin(x[0],w,"classifier.dense")),w,"classifier.out_proj")
        return x
    if nomic:
        c=dict(model_type="nomic_bert",architectures=["NomicBertModel"],n_embd=D_,n_head=H_,n_inner=F_,n_layer=2,n_positions=64,max_trained_positions=2048,rotary_emb_base=base,rotary_emb_fraction=1.0,rotary_emb_interleaved=False,rotary_emb_scale_base=None,rotary_scaling_factor=None,activation_function="swiglu" if gated else "gelu",layer_norm_epsilon=eps,vocab_size=N,type_vocab_size=2 if gated else 1,prenorm=False,parallel_block=False,parallel_block_tied_norm=False,causal=False,use_rms_norm=False,qkv_proj_bias=not gated,mlp_fc1_bias=not gated,mlp_fc2_bias=not gated,scale_attn_weights=True,scale_attn_by_inverse_layer_idx=False,pad_token_id=0)
        if moe: c.update(num_experts=4,moe_top_k=2,moe_every_n_layers=2,moe_impl="megablocks",moe_normalize_expert_weights=False,expert_choice_router=False,num_shared_experts=0,add_pooling_layer=False,ffn_div=1,moe_resid_pdrop=0.0)
    else:
        c=dict(model_type="xlm-roberta",architectures=["XLMRobertaModel" if kind=="jina3_lora" else "XLMRobertaForSequenceClassification"],hidden_size=D_,num_attention_heads=H_,num_hidden_layers=2,intermediate_size=F_,vocab_size=N,type_vocab_size=1,pad_token_id=1,layer_norm_eps=eps,hidden_act="gelu",use_flash_attn=False,emb_pooler=None,torch_dtype="bfloat16")
        if kind=="jina3_lora": c.update(max_position_embeddings=64,position_embedding_type="rotary",rotary_emb_base=20000.0,lora_adaptations=["a","b","c","d","e"],lora_rank=2,lora_alpha=1,load_trained_adapters=True)
        else: c.update(max_position_embeddings=42,position_embedding_type="absolute")
    return Own(c,sh,rows)
def own(name,o,kind):
    d=os.path.join(root,name); os.makedirs(d,exist_ok=True)
    json.dump(o.config,open(os.path.join(d,"config.json"),"w"),indent=1,sort_keys=True)
    save_file({n:t.bfloat16().contiguous() for n,t in o.w.items()},os.path.join(d,"model.safetensors"),metadata={"format":"pt"})
    tok=tokenizer(kind); tok.save(os.path.join(d,"tokenizer.json"),pretty=False)
    if "SequenceClass" in o.config["architectures"][0]:
        q,ts=PAIRS; ex={"query":q,"texts":ts,"scores":[torch.sigmoid(o.rows(o.w,tok.encode(q,t).ids)[0]).item() for t in ts]}
    else: ex={"texts":TEXTS,"pooling":"mean","vectors":[o.rows(o.w,tok.encode(t).ids).mean(0).tolist() for t in TEXTS]}
    json.dump(dict(ex,against="the published equations"),open(os.path.join(d,"expected.json"),"w"),ensure_ascii=False,indent=1)

own("jina_v2", jina2(False), "bert")
own("jina_v2_code", jina2(True), "bert")
own("jina_v3", flash("jina3_lora"), "roberta")
own("jina_rerank", flash("jina_reranker"), "roberta")
own("nomic_bert_first", flash("nomic"), "bert")
own("nomic_bert_moe", flash("nomic_moe"), "roberta")

# A decoder that reads both ways, whose rows then look at vectors that are learned.
class Latent(torch.nn.Module):
    def __init__(s,cfg,n,h,dh):
        super().__init__(); D=cfg.hidden_size; L=torch.nn.Linear; s.config,s.h=cfg,h
        s.embedding_model=T.MistralModel(cfg)
        fn=torch.nn.Module(); fn.to_q,fn.to_kv,fn.to_out=L(D,h*dh,bias=False),L(D,2*h*dh,bias=False),L(h*dh,D,bias=False)
        a=torch.nn.Module(); a.norm,a.norm_context,a.fn=torch.nn.LayerNorm(D),torch.nn.LayerNorm(D),fn
        ff=torch.nn.Module(); ff.net=torch.nn.Sequential(L(D,8*D),torch.nn.Identity(),L(4*D,D))
        b=torch.nn.Module(); b.norm,b.fn=torch.nn.LayerNorm(D),ff
        s.latent_attention_model=torch.nn.Module(); s.latent_attention_model.latents=torch.nn.Parameter(torch.randn(n,D)); s.latent_attention_model.cross_attend_blocks=torch.nn.ModuleList([a,b])
    def forward(s,ids):
        S=len(ids); x=s.embedding_model(input_ids=torch.tensor([ids]),attention_mask=torch.zeros(1,1,S,S,dtype=torch.float64)).last_hidden_state[0]
        a,b=s.latent_attention_model.cross_attend_blocks; lat=s.latent_attention_model.latents
        q=a.fn.to_q(a.norm(x)).view(S,s.h,-1).transpose(0,1); k,v=[t.view(len(lat),s.h,-1).transpose(0,1) for t in a.fn.to_kv(a.norm_context(lat)).chunk(2,-1)]
        o=((q@k.transpose(1,2)*q.shape[-1]**-.5).softmax(-1)@v).transpose(0,1).reshape(S,-1)
        x=a.fn.to_out(o)+x
        u,g=b.fn.net[0](b.norm(x)).chunk(2,-1)
        return b.fn.net[2](u*F.gelu(g))+x
@torch.no_grad()
def nv(name,cfg,n,h,dh,unit):
    m=Latent(cfg,n,h,dh).double().eval(); spread(m); tok=tokenizer("cls"); vs=[]
    tok.post_processor=processors.TemplateProcessing(single="[CLS] $A",special_tokens=[("[CLS]",2)])
    for t in TEXTS:
        v=m(tok.encode(t).ids+[3]).mean(0); vs.append((v/v.norm() if unit else v).tolist())
    text={k:v for k,v in cfg.to_dict().items() if v is not None and k in ("vocab_size","hidden_size","intermediate_size","num_hidden_layers","num_attention_heads","num_key_value_heads","max_position_embeddings","rms_norm_eps","sliding_window","rope_theta","head_dim","hidden_act")}
    d=os.path.join(root,name); os.makedirs(d,exist_ok=True)
    json.dump({"model_type":"nvembed","architectures":["NVEmbedModel"],"auto_map":{"AutoModel":"modeling_nvembed.NVEmbedModel"},"hidden_size":cfg.hidden_size,"add_eos":True,"is_mask_instruction":True,"latent_attention_config":{"model_type":"latent_attention","num_cross_heads":h,**({} if unit else {"output_normalize":False})},"text_config":dict(text,model_type="bidir_mistral",rope_theta=10000.0)},open(d+"/config.json","w"),indent=1)
    save_file({n:p.detach().bfloat16() for n,p in m.state_dict().items() if "inv_freq" not in n},d+"/model.safetensors",metadata={"format":"pt"})
    tok.save(d+"/tokenizer.json",pretty=False); json.dump({"bos_token":"[CLS]","eos_token":"[SEP]"},open(d+"/tokenizer_config.json","w"))
    json.dump({"texts":TEXTS,"pooling":"mean","vectors":vs,"against":"the published equations"},open(d+"/expected.json","w"),ensure_ascii=False,indent=1)

nv("nv_embed", T.MistralConfig(**dict(lesser, num_key_value_heads=1, max_position_embeddings=64, rms_norm_eps=1e-5, attn_implementation="eager")), 5, 2, 8, True)
