"""Writes pieces.json: small SentencePiece models, trained on README.md, and what transformers 5.24's classes make of
them in folders without a tokenizer.json. Run: python3 pieces.py [SEED [TEXTS]] > pieces.json, in this folder, with
`pip install transformers==5.24.0 sentencepiece protobuf`; spmrewritten_test.go compares."""
import base64, io, json, os, random, sys, tempfile

import sentencepiece
from transformers import AutoTokenizer

rnd = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
times = int(sys.argv[2]) if len(sys.argv) > 2 else 24
lines = [l for l in open("../../README.md").read().splitlines() if l.strip()]
work = tempfile.mkdtemp()
# A map of characters of a few rules, since that of NFKC has 240 KB.
open(work + "/rules.tsv", "w").write("".join(f"{ord(a):X}\t{' '.join('%X' % ord(c) for c in b)}\n" for a, b in {
    "ﬁ": "fi", "①": "1", "\u3000": " ", "\n": " ", "\t": " ", "\u00a0": " ", "Ａ": "A", "…": "...", "\u200b": " "}.items()))


def train(**options):
    out = io.BytesIO()
    options = {"vocab_size": 150, "hard_vocab_limit": False, "num_threads": 1, "minloglevel": 3, "model_type": "unigram",
        "normalization_rule_tsv": work + "/rules.tsv"} | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=out, **options)
    return out.getvalue()


models = {
    "t5": train(pad_id=0, eos_id=1, unk_id=2, bos_id=-1),
    "fairseq": train(),
    "plain": train(normalization_rule_tsv="", normalization_rule_name="identity"),
    "plain5": train(pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_tsv="",
        normalization_rule_name="identity"),
    "albert": train(pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        user_defined_symbols=["(", ")", '"', "-"]),
    "nllb": train(model_type="bpe", vocab_size=300),
    "deberta": train(pad_id=0, unk_id=3, bos_id=1, eos_id=2, pad_piece="[PAD]", unk_piece="[UNK]", bos_piece="[CLS]",
        eos_piece="[SEP]", user_defined_symbols=["[MASK]"]),
}
codes = ["ace_Arab", "eng_Latn", "fra_Latn"]
mask = {"content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True, "single_word": False, "__type": "AddedToken"}
size = len(sentencepiece.SentencePieceProcessor(model_proto=models["nllb"]))
decoder = {str(i + size + 1): {"content": c, "special": True, "lstrip": False, "rstrip": False, "single_word": False,
    "normalized": False} for i, c in enumerate(codes + ["<mask>"])}
bpe = "sentencepiece.bpe.model"
folders = [  # model, its file's name, model_type, tokenizer_config.json, special_tokens_map.json
    ("t5", "spiece.model", "t5", {"tokenizer_class": "T5Tokenizer"}, None),
    ("t5", "spiece.model", "t5", {}, None),
    ("t5", "spiece.model", "mt5", {"tokenizer_class": "T5Tokenizer", "extra_ids": 0}, None),
    ("t5", "spiece.model", "t5", {"tokenizer_class": "T5TokenizerFast", "extra_ids": 7, "additional_special_tokens":
        [f"<extra_id_{i}>" for i in range(7)]}, None),
    ("plain5", "spiece.model", "t5", {"tokenizer_class": "T5Tokenizer"}, None),
    ("fairseq", bpe, "xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer"}, None),
    ("fairseq", bpe, "xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizerFast", "mask_token": mask}, None),
    ("fairseq", bpe, "xlm-roberta", {"add_prefix_space": False}, None),
    ("plain", bpe, "xlm-roberta", {"tokenizer_class": "XLMRobertaTokenizer"}, None),
    ("albert", "spiece.model", "albert", {"tokenizer_class": "AlbertTokenizer"}, None),
    ("albert", "spiece.model", "albert", {"tokenizer_class": "AlbertTokenizer", "do_lower_case": False,
        "keep_accents": True}, None),
    ("fairseq", bpe, "mbart", {"tokenizer_class": "MBartTokenizer"}, None),
    ("fairseq", bpe, "mbart", {"tokenizer_class": "MBartTokenizer", "src_lang": "de_DE"}, None),
    ("nllb", bpe, "m2m_100", {"tokenizer_class": "NllbTokenizer"}, None),
    ("nllb", bpe, "m2m_100", {"tokenizer_class": "NllbTokenizer", "additional_special_tokens": codes,
        "src_lang": "fra_Latn"}, None),
    ("nllb", bpe, "m2m_100", {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn"},
        {"additional_special_tokens": codes}),
    ("nllb", bpe, "m2m_100", {"tokenizer_class": "NllbTokenizer", "src_lang": "fra_Latn", "added_tokens_decoder": decoder},
        None),
    ("fairseq", bpe, "camembert", {"tokenizer_class": "CamembertTokenizer"}, None),
    ("deberta", "spm.model", "deberta-v2", {"tokenizer_class": "DebertaV2Tokenizer"}, None),
    ("deberta", "spm.model", "deberta-v2", {"tokenizer_class": "DebertaV2Tokenizer", "split_by_punct": True,
        "do_lower_case": True}, None),
]

texts = ["", "Hello world", " two  spaces ", "<s>a</s> <mask>b [MASK] <extra_id_0>x", "1,000, 日本 (a)-b ``q''", "▁x",
    "<pad> en_XX eng_Latn fra_Latn"]
words = " ".join(lines).split()
special = "<s> </s> <pad> <unk> <mask> [MASK] [CLS] [SEP] <extra_id_0> <extra_id_6> en_XX fra_Latn de_DE <unk>NOTUSED".split()
while len(texts) < times:
    text = ""
    for _ in range(rnd.randint(1, 7)):
        kind = rnd.random()
        text += (rnd.choice(words) if kind < 0.5 else rnd.choice(special) if kind < 0.65 else "".join(rnd.choice(
            "aé日ＡÀß①ﬁ\u0301İ ▁\t\n\u00a0\u200b\u3000(),.-\"'`0123ｱ가…") for _ in range(rnd.randint(1, 5))))
        text += rnd.choice(["", " ", " ", " ", "  ", "\n"])
    texts.append(text)

out = {"texts": texts, "models": {name: base64.b64encode(m).decode() for name, m in models.items()}, "folders": []}
for model, name, kind, config, specials in folders:
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/{name}", "wb").write(models[model])
        files = {"config.json": {"model_type": kind}, "tokenizer_config.json": config}
        if specials:
            files["special_tokens_map.json"] = specials
        for file, content in files.items():
            json.dump(content, open(f"{folder}/{file}", "w"))
        tok = AutoTokenizer.from_pretrained(folder)
        ids = [tok(t)["input_ids"] for t in texts]
        out["folders"].append({"model": model, "name": name, "files": files, "ids": ids,
            "decoded": [tok.decode(i, skip_special_tokens=True) for i in ids]})
print("{" + ",\n".join(f"{json.dumps(k)}: " + ("[\n" + ",\n".join(json.dumps(x, ensure_ascii=False) for x in v) + "\n]"
    if k == "folders" else json.dumps(v, ensure_ascii=False)) for k, v in out.items()) + "}")
