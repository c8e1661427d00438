"""Reading Prometheus text, and the faults that a scrape can have."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import msgspec

OWN = "dynamo_sglang_"
MOST_SERIES_OF_ONE_METRIC = 128
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"(?:,|$)')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}
# Base units alone; a share is a ratio, and 0 to 1.
_WRONG_UNIT = re.compile(r"_(ms|millis|milliseconds|us|minutes|kb|mb|gb|percent|pct)(_|$)")


class Sample(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct):
    name: str
    kind: str = ""
    help: str = ""
    samples: list[Sample] = []

    def owns(self, sample: str) -> bool:
        return sample in (self.name, *(self.name + end for end in _SUFFIXES.get(self.kind, ())))


class Scrape:
    """``families`` in the order of the text; raises ValueError for a line that is none."""

    def __init__(self, text: str) -> None:
        self.heads: Counter[tuple[str, str]] = Counter()
        self.strays: list[str] = []
        self.families: dict[str, Family] = {}
        present: Family | None = None
        for line in filter(None, text.split("\n")):
            if line.startswith("# "):
                present = self._head(line)
                continue
            sample = parse_sample(line)
            if present is None or not present.owns(sample.name):
                self.strays.append(sample.name)
            else:
                present.samples.append(sample)

    def _head(self, line: str) -> Family:
        _, word, name, *rest = line.split(" ", 3)
        self.heads[word, name] += 1
        family = self.families.setdefault(name, Family(name, samples=[]))
        if word == "TYPE":
            family.kind = "".join(rest)
        elif word == "HELP":
            family.help = "".join(rest)
        return family

    @property
    def samples(self) -> Iterator[Sample]:
        return (sample for family in self.families.values() for sample in family.samples)

    @property
    def sample_names(self) -> set[str]:
        """Names that may be asked for, those of families without samples included."""
        return {sample.name for sample in self.samples} | set(self.families)

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]

    def value(self, name: str, **labels: str) -> float:
        """The one sample; ValueError when there are none or several."""
        (value,) = self.values(name, **labels)
        return value


def parse_sample(line: str) -> Sample:
    match = _SAMPLE.match(line)
    if match is None:
        raise ValueError(f"no sample: {line!r}")
    text = match["labels"] or ""
    labels = dict(_LABEL.findall(text))
    if sum(len(whole) for whole in _LABEL.sub("", text)):
        raise ValueError(f"labels cannot be read: {line!r}")
    return Sample(match["name"], labels, float(match["value"]))


# --- faults ---------------------------------------------------------------------------------------


def faults(scrape: Scrape) -> list[str]:
    """What is wrong with any exposition; sentences, empty when nothing is."""
    found = [
        f"{word} of {name} is there {n} times" for (word, name), n in scrape.heads.items() if n > 1
    ]
    found += [f"{name} stands outside its family" for name in scrape.strays]
    series = Counter((one.name, *sorted(one.labels.items())) for one in scrape.samples)
    found += [f"{key[0]} is there {n} times with {key[1:]}" for key, n in series.items() if n > 1]
    for family in scrape.families.values():
        if not family.kind or not family.help.strip():
            found.append(f"{family.name} lacks help or type")
        if family.kind == "histogram":
            found += histogram_faults(family)
    return found


def histogram_faults(family: Family) -> Iterable[str]:
    buckets: dict[tuple[tuple[str, str], ...], dict[float, float]] = defaultdict(dict)
    counts: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        rest = tuple(sorted(pair for pair in sample.labels.items() if pair[0] != "le"))
        if sample.name.endswith("_bucket"):
            buckets[rest][float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_count"):
            counts[rest] = sample.value
    for labels, by_bound in buckets.items():
        ordered = [by_bound[bound] for bound in sorted(by_bound)]
        if float("inf") not in by_bound or ordered != sorted(ordered):
            yield f"{family.name}: buckets of {labels} are not cumulative up to +Inf"
        elif counts.get(labels) != by_bound[float("inf")]:
            yield f"{family.name}: the count of {labels} is not its last bucket"


def own_faults(scrape: Scrape) -> list[str]:
    """Prometheus' naming conventions and bounded labels, for this worker's own metrics."""
    found = []
    for family in scrape.families.values():
        if not family.name.startswith(OWN):
            continue
        if not re.fullmatch(r"[a-z][a-z0-9_]*", family.name):
            found.append(f"{family.name}: lower case, digits and underscores only")
        if family.name.endswith("_total") != (family.kind == "counter"):
            found.append(f"{family.name}: _total belongs to counters, which all have it")
        if _WRONG_UNIT.search(family.name):
            found.append(f"{family.name}: not in a base unit")
        if family.name.endswith(("_count", "_sum", "_bucket")):
            found.append(f"{family.name}: ends like a part of a histogram")
        if not family.help.endswith(".") or family.help.lower().startswith(family.name):
            found.append(f"{family.name}: the help is no sentence")
        if family.name.endswith("_info") and any(one.value != 1 for one in family.samples):
            found.append(f"{family.name}: info metrics are 1")
        series = {tuple(sorted(one.labels.items())) for one in family.samples}
        if len(series) > MOST_SERIES_OF_ONE_METRIC:
            found.append(f"{family.name}: {len(series)} series")
    return found
