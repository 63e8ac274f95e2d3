"""`fedrl reproduce PAPER`: measure what the paper reports, then write the page about it."""

from pathlib import Path

from fedrl.cli.parser import Parser

INDEX, PARTITIONS = "index", "partitions"
REPRODUCE = (
    "Regenerate a paper's tables and figures; stopped, it goes on where it was. robustness is no "
    "paper: it measures what fedrl's own rules of aggregation are worth against clients that lie. "
    "Nor is exposure: it attacks trained models, with and without noise. "
    "index computes nothing: it judges every statement of the papers by the records that there "
    "are. partitions draws what clients hold (Figures 5 to 16 of FedAgent), of FEDRL_DATA's data."
)


def command(argv: list[str]) -> int:
    """Regenerate a paper's tables and figures."""
    from fedrl import api
    from fedrl.api.papers import PAPERS, SCALES, write_index, write_partitions

    parser = Parser("fedrl reproduce", description=REPRODUCE)
    names = (*PAPERS, INDEX, PARTITIONS)
    parser.add_argument("paper", choices=names, metavar="PAPER", help=", ".join(names))
    parser.add_argument(
        "--scale", choices=SCALES, default="small", help="smoke: minutes. small: hours "
        "on two cores. full: hours more, for fedagent on a GPU. paper: fedagent's "
        "Table 1 with the authors' models, days on several GPUs (--processes 0 only plans it)."
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", default=[], metavar="PART", help="parts to compute")
    parser.add_argument(
        "--cells", nargs="+", default=[], metavar="NAME", help="of these parts only what is called "
        "so: fedagent-seed0 'fedagent-*', the names that are said as it goes on. Several machines "
        "can so share a part"
    )  # fmt: skip
    parser.add_argument(
        "--out", type=Path, default=Path("runs/reproduce"), help="where runs are kept"
    )
    parser.add_argument(
        "--page", type=Path, help="docs/results/PAPER.md for published scales in a checkout, else "
        "beside the measurements"
    )  # fmt: skip
    parser.add_argument(
        "--records", type=Path, help="where records are kept: PAPER/records beside the page"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="runs at a time (one per core, 3 on a "
        "GPU); 0 computes nothing and writes the page of what is there"
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=float, metavar="LIMIT", help="stop then, keep what there is "
        "and write the page; the same command goes on"
    )  # fmt: skip
    parser.add_argument(
        "--model", metavar="MODEL", help="fedagent, fedrlhf, full scale: folder or Hugging Face id "
        "that warm starts begin with (or set FEDRL_MODEL)"
    )  # fmt: skip
    asked = parser.parse_args(argv)
    if asked.paper == INDEX:
        print(f"page: {write_index(asked.page)}")
        return 0
    if asked.paper == PARTITIONS:
        print(f"page: {write_partitions(asked.page)}")
        return 0
    page = api.reproduce(
        asked.paper,
        asked.scale,
        only=asked.only,
        cells=asked.cells,
        out=asked.out,
        page=asked.page,
        records=asked.records,
        processes=asked.processes,
        minutes=asked.minutes,
        model=asked.model,
    )
    print(f"page: {page}")
    return 0
