"""Writes the folders beside it: random tiny encoders, embedders and rerankers in Hugging Face's form, each with
expected.json, what transformers makes of texts in float64. Run: python3 gen.py [FOLDER]
with torch, transformers 5.24 and tokenizers 0.23 from PyPI."""
import json, os, sys, torch, transformers
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
