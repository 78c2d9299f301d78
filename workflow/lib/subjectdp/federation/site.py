"""A silo's own file, and its own data: read, compared with what the federation calls an item, and capped."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from subjectdp.config.messages import validated
from subjectdp.config.run import RunConfig, check_data
from subjectdp.config.sections import DataConfig, PerformanceConfig, Section
from subjectdp.data.archives import describe
from subjectdp.data.catalogue import Source
from subjectdp.data.content import Content, addresses, check_content, stored_labels
from subjectdp.data.partition import Partition, keep_within_cap
from subjectdp.data.prepare import read_source
from subjectdp.data.store import PreparedData
from subjectdp.errors import DataError, expected, unknown
from subjectdp.federation.proposal import Items, Proposal, digest
from subjectdp.io.yaml_files import read_yaml
from subjectdp.plan.plan import Count, Delta, NaturalNumber, NoiseSource, Positive, PrivacyUnit

_READ = {"dataset", "source", "path", "label", "subject", "columns", "drop", "missing", "ranges", "task"}


class Site(Section):
    """The one file that a silo edits. What it says binds: no plan and no server can ask for more."""

    silo: NaturalNumber
    """Number of this silo in the federation, from 0."""
    folder: str
    """Where the ledger of what was released lies, and the socket that Flower's side connects to. Keep it: the budget
    of these people is counted there."""
    data: DataConfig
    """The table or LEAF folder of this silo, training items alone; written as in a scenario."""
    max_items_per_subject: Count | None
    """Most items of one person that are used; further ones are left out, at random. null: the plan's cap alone."""
    silos_per_subject: Count
    """A person may be at so many silos: a plan that counts on fewer is refused."""
    unit: Literal[PrivacyUnit.SUBJECT, PrivacyUnit.ITEM] = PrivacyUnit.SUBJECT
    """Whom the limit protects: each person over all silos, or each single item."""
    epsilon: Positive | None
    """Most that all runs on these people may give away together. null: no limit, and plans without noise are allowed.
    """
    delta: Delta
    """δ of that limit."""
    noise: Literal[NoiseSource.SECURE, NoiseSource.REPRODUCIBLE] = NoiseSource.SECURE
    """secure: sampling and noise from the operating system, anew in each round. reproducible: from the plan's seed, for
    comparisons on data that need no protection."""
    plan: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The digest of the one plan that was agreed on; null: any plan within the limit, where no person's limit rests on
    other silos."""
    performance: PerformanceConfig = PerformanceConfig()
    """Threads and device of this machine; ``physical_batch_size`` 0: items go through the model one by one."""


def load_site(path: Path | str) -> Site:
    """The site of a YAML file; ``folder`` and ``data.path`` are relative to it. Raises ConfigError."""
    site = validated(Site, read_yaml(path))
    if not site.data.source.in_place or site.data.path is None:
        raise expected("data.source", site.data.source, "table or leaf_json, with data.path")
    for key in sorted(site.data.model_fields_set - _READ):
        allowed = "left out: it decides nothing here, all items of the file are training items"
        raise expected(f"data.{key}", getattr(site.data, key), allowed)
    check_data(site.data)
    if site.data.own_subjects and site.unit is PrivacyUnit.SUBJECT and site.epsilon is not None:
        allowed = "the column that says whose a row is: without it no person is limited, each row is (unit: item)"
        raise expected("data.subject", site.data.subject, allowed)
    beside = Path(path).absolute().parent
    data = site.data.model_copy(update={"path": str(beside / Path(site.data.path).expanduser())})
    return site.model_copy(update={"data": data, "folder": str(beside / Path(site.folder).expanduser())})


@dataclass(frozen=True)
class SiteData:
    """A silo's items as read, and what tells them from others."""

    content: Content
    sha256: str  # of the file or folder, and of how it is read: which column says whose a row is


def read_site_data(site: Site) -> SiteData:
    """Reads the silo's file or folder. Raises DataError as its reader does."""
    path = Path(str(site.data.path))
    content = read_source(site.data, path, least_classes=1)  # the server says which others there are
    check_content(content)
    read = site.data.model_dump_json(exclude={"path"})
    return SiteData(content, digest(f"{describe(path)['sha256']} {read}".encode()))


def conforming(content: Content, data: DataConfig, items: Items) -> Content:
    """The content with features and labels in the order of ``items``; DataError where they are of another kind.
    A table may lack a class or a value of a feature in words, and order its columns in another way."""
    own, table = Items.of(content, data), content.dataset == Source.TABLE
    named = {"class_names", "features", "shape"} | ({"classes"} if items.class_names else set())
    for key, value in items.model_dump(exclude=named if table else None).items():
        if getattr(own, key) != value:
            raise expected(f"{key} of this silo's items", getattr(own, key), f"{value!r}, as agreed", DataError)
    return _in_order(content, own, items) if table else content


def _in_order(content: Content, own: Items, items: Items) -> Content:
    for kind, key in (("feature", "features"), ("class", "class_names")):
        for name in getattr(own, key):
            if name not in getattr(items, key):
                raise unknown(f"{kind} of this silo's items", name, getattr(items, key), DataError)
    in_words = {name.partition("=")[0] for name in own.features if "=" in name}
    for name in set(items.features) - set(own.features):
        if name.partition("=")[0] not in in_words and not name.endswith(" missing"):
            raise expected("features of this silo's items", list(own.features), f"with {name}, as agreed", DataError)
    features = np.zeros((len(content.features), len(items.features)), np.float32)
    features[:, [items.features.index(name) for name in own.features]] = content.features
    labels = content.labels
    if items.class_names:
        numbers = np.array([items.class_names.index(name) for name in own.class_names])
        labels = stored_labels(numbers[labels].astype(np.int64), items.classes)
    notes = {**content.notes, "features": list(items.features), "class_names": list(items.class_names)}
    return replace(content, features=features, labels=labels, classes=items.classes, notes=notes)


@dataclass(frozen=True)
class OwnItems:
    """What a silo trains on: its prepared data, and a partition that knows its own items alone."""

    prepared: PreparedData
    partition: Partition
    cut: str  # what the cap left out, in words; empty: nothing


def own_items(site: Site, data: SiteData, proposal: Proposal, run: RunConfig) -> OwnItems:
    """The silo's items for a run, at most the smaller of both caps of each person; DataError for another kind, or none.
    Which items of a person stay depends on the run's seed and the person's name: it is the same in all rounds."""
    content = conforming(data.content, site.data, proposal.items)
    caps = [cap for cap in (site.max_items_per_subject, run.partition.max_items_per_subject) if cap is not None]
    cap = min(caps, default=None)
    owners = np.repeat(np.arange(len(content.items), dtype=np.int32), content.items)
    places = addresses(content.first_items, content.items)
    cut = ""
    if cap is not None and (people := int((content.items > cap).sum())):
        keep = keep_within_cap(run.seed, content.subject_ids, content.items, np.zeros(len(owners), np.int16), cap)
        cut = f"cap of {cap} items a person: {(~keep).sum()} items of {people} people are left out"
        places, owners = places[keep], owners[keep]
    offsets, nothing = np.zeros(len(proposal.silos) + 1, np.int64), np.empty(0, np.int32)
    offsets[site.silo + 1 :] = len(owners)
    facts = {"counts": {"subjects": int(owners.max()) + 1}}
    partition = Partition(places.astype(np.int32), owners, offsets, nothing, nothing, facts)
    meta = {"sha256": {"source": data.sha256}, "synthetic": False, "copies": 1}
    return OwnItems(PreparedData(**vars(content), folder=Path(site.folder), meta=meta), partition, cut)
