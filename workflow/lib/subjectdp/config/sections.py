"""The sections of a run's configuration: frozen pydantic models, one class a section.

Every key has a default, a range and, as the text below it, a description. ``config/README.md`` and
``config/config.schema.json`` are generated from this file. Numbers may be written as text (YAML 1.1 reads ``1e-5`` as
text, ``--config`` passes text); ``true`` is not a number.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from subjectdp.algorithms.registry import ALGORITHMS, label
from subjectdp.data.catalogue import DATASETS, Source
from subjectdp.models.catalogue import MODELS
from subjectdp.plan import plan
from subjectdp.plan.plan import Accountant

Distribution = Literal["uniform", "power", "equal", "inherent"]
if TYPE_CHECKING:
    AlgorithmName = str
    Dataset = str
    ModelName = str
else:
    AlgorithmName = Literal[tuple(ALGORITHMS)]
    Dataset = Literal[tuple(DATASETS)]
    ModelName = Literal[tuple(MODELS)]


class Section(BaseModel):
    """Base of all sections: immutable, unknown keys refused, infinities and NaN refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), use_attribute_docstrings=True
    )


ColumnName = Annotated[str, Field(min_length=1, max_length=200)]
ParameterName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


class EmbeddedConfig(Section):
    """Size of the synthetic archives that the project generates itself."""

    subjects: Annotated[int, Field(ge=2, le=100_000), plan.NotBool] = 60
    """Writers or characters to generate."""
    items_per_subject: Annotated[int, Field(ge=5, le=100_000), plan.NotBool] = 120
    """Mean number of items (images, text windows) of a subject."""
    seed: plan.NaturalNumber = 0
    """Seed of the generator; independent of the run's seed."""


class DataConfig(Section):
    """Which data set, from where, and how it is split."""

    @model_validator(mode="before")
    @classmethod
    def _table(cls, value: Any) -> Any:
        return {"dataset": "table", **value} if isinstance(value, dict) and value.get("source") == "table" else value

    dataset: Dataset = "femnist"
    """A data set of the catalogue; table: a CSV or parquet file of one's own (data.source table)."""
    source: Source = Source.EMBEDDED
    """Where it comes from: generated archives (embedded, synthetic), files that others made of LEAF's data (leaf_json:
    its own JSON, Flower Labs' parquet or CSV, TensorFlow Federated's HDF5), the original archives and e-text
    (upstream), or a table of one's own (table)."""
    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """leaf_json: the file, the folder or zip. table: the CSV or parquet file, or a folder of them. upstream: a folder
    with files fetched beforehand, used instead of the network. Relative to the working directory; ${VAR} and
    ${VAR:-default} are replaced from the environment (SUBJECTDP_*, and names of places such as HOME or SCRATCH), and an
    empty path is none. Of it, only the last component enters the ids (leaf_json, table)."""
    label: ColumnName | None = None
    """table: the column of the label."""
    subject: ColumnName | Annotated[tuple[ColumnName, ...], Field(min_length=1)] | None = None
    """table: the column that says whose an item is, or several that do together ([hospital, patient]); null: each item
    is its own subject. leaf_json: "none" where the users are no people (LEAF's sampling -s iid): each item is its own
    subject."""
    silo: ColumnName | None = None
    """table: the column that says at which silo an item lies; file: the name of its file does."""
    columns: tuple[ColumnName, ...] = ()
    """table: the features; empty: all columns but label, subject and silo."""
    drop: tuple[ColumnName, ...] = ()
    """table: columns that are no features."""
    missing: Literal["refuse", "drop", "indicator"] = "refuse"
    """table: cells without a value: refuse the table, drop such rows, or 0 and a feature of its own that says so
    (indicator; features only)."""
    ranges: dict[ColumnName, tuple[float, float]] = {}
    """table: public least and largest value of features in numbers, which are scaled to 0 to 1 and cut off there; of
    the label where data.task is regression."""
    task: Literal["classification", "regression"] | None = None
    """table: the label is a class or a number (squared loss; in the place of accuracy the share of the variance that
    is explained); null: a class, unless that is unclear."""
    subjects: Annotated[int, Field(ge=2, le=plan.LARGEST_INTEGER), plan.NotBool] | None = None
    """Keep the first N subjects only (Small-FEMNIST: 350); null keeps all."""
    test_fraction: plan.OpenFraction | None = None
    """Part of each subject's items held out for the test; null: 0.1 (Shakespeare), 0.2 (all others)."""
    validation_fraction: plan.OpenFraction = 0.2
    """Part of each subject's remaining items held out for validation."""

    @property
    def own_subjects(self) -> bool:
        """No subject ids: each item is its own subject."""
        anonymous = self.source == Source.TABLE and self.subject is None
        made_up = self.source == Source.LEAF_JSON and self.subject is not None
        return DATASETS[self.dataset].own_subjects or anonymous or made_up

    duplicate_first_image_bug: bool = False
    """FEMNIST: repeat the first image of every writer but the first, as LEAF does."""
    embedded: EmbeddedConfig = EmbeddedConfig()
    """Size of the generated data (embedded)."""
    expected: dict[Literal["users", "items", "classes", "groups", "vocabulary", "users_after_split"], plan.Count] = {}
    """Counts that the whole source must have, before data.subjects trims it; a mismatch stops the run. users (writers,
    characters), items, classes, groups (plays), vocabulary, users_after_split (with training and test items)."""


class PartitionConfig(Section):
    """How the subjects' items are distributed over the silos."""

    silos: Annotated[int, Field(ge=1, le=plan.MOST_SILOS), plan.NotBool] = 16
    """Number of silos S; inherent: that of the silos that the source names."""
    distribution: Distribution = "uniform"
    """Distribution of a subject's items over the silos; left out where data.silo is given: inherent. uniform, or power
    with exponent alpha over an order of the silos drawn for each subject; equal: all items dealt at random in equal
    shares, whoever's they are (iid clients); inherent: each item at the silo that the source names."""
    alpha: plan.Positive = 1.0
    """Exponent of the power distribution; 1 is even, 16 very skewed."""
    max_items_per_subject: plan.Count | None = None
    """Enforced cap k on a subject's training items at one silo (the rest is dropped); null: no cap. Sound subject-level
    accounting needs one."""
    silos_per_subject: plan.Count | None = None
    """Number of silos that may hold one subject's items; null: all."""


class AlgorithmConfig(Section):
    """The training algorithm; the text ``name:variant`` is accepted in place of the mapping."""

    name: AlgorithmName = "fed_avg"
    """Algorithm."""
    variant: Annotated[str, Field(pattern=r"^v[0-9]+(_sampled)?$")] | None = None
    """Version of the paper that defines it: v1 or v3 for higrad_avg_dp (null: v1); v3 or v1_sampled for user_ldp (null:
    v1 with q = 1; v1_sampled: with q = B over the silo's items; v3: q = 1 and Theorem 3.11's bound on the noise); v0
    for central_sub_dp; null for the others."""

    @property
    def label(self) -> str:
        """Display name, for instance ``HiGradAvgDP (v1)``."""
        return label(self.name, self.variant)


class PrivacyConfig(Section):
    """Privacy target and accounting; without effect on fed_avg, which claims no privacy."""

    mode: plan.AccountingMode = plan.AccountingMode.AS_PUBLISHED
    """Accounting and noise as the paper prints them, or as can be proven."""
    horizontal: plan.Horizontal = plan.Horizontal.ROUNDS_OVER_SQRT_S
    """How subject-level algorithms pay for the silos that hold a subject: floor(R/sqrt(s)) rounds (published), noise
    for s times the steps (published), a sound composition over those silos, or nothing (v0: all rounds, one silo's
    steps)."""
    epsilon: plan.Positive = 4.0
    """Target epsilon of the whole run."""
    delta: plan.Delta = 1e-5
    """Target delta of the whole run."""
    clip_norm: plan.ClipNorm = 1.0
    """L2 bound C on one unit's contribution."""
    noise_multiplier: plan.NonNegative | None = None
    """Noise std over clip_norm, on a silo's sum; under secure aggregation on the sum over silos. null: calibrated to
    epsilon and delta."""
    accountant: Literal[Accountant.PLD, Accountant.RDP, Accountant.OPACUS, Accountant.MIRONOV] = Accountant.PLD
    """Accountant that calibrates the noise. As_published mode only: opacus, Opacus' RDP accountant, which the
    subject-level papers used (6 to 7 % more noise than pld); mironov, the joint-noise paper's."""
    noise_source: Literal[plan.NoiseSource.REPRODUCIBLE, plan.NoiseSource.SECURE] = plan.NoiseSource.REPRODUCIBLE
    """What sampling and noise are drawn from: the seed (reproducible; a model that is not for release), or 256 bits of
    the operating system that no file keeps after the run (secure; slower noise, on the CPU)."""
    predicted_subjects: plan.Count | None = None
    """Experiment, sound mode only: train with the noise on the average that so many subjects would have at epsilon; the
    run itself gives its own, fewer subjects a larger epsilon, which is stated. null: off."""


class JointConfig(Section):
    """Noise under secure aggregation: joint_noise reads all keys, subject_release and uldp_fl who is honest (the two
    keys colluding_silos and own_noise_only)."""

    noise: plan.NoiseDistribution = plan.PlanSettings.noise_distribution
    """Gaussian noise, or integer noise on rounded gradients, summed in a ring (secure aggregation). skellam needs
    privacy.accountant rdp and plain sgd."""
    bits: plan.GradientBits = plan.PlanSettings.gradient_bits
    """skellam: a clip norm is 2^bits steps of the integer grid that gradients are rounded to."""
    clipping: Literal["item", "update"] = "item"
    """item: each item's gradient is clipped and every local step noised, as in the paper. update: local steps without
    noise, then a silo's whole update is clipped and noised once; sound for any number of local steps, privacy unit: the
    silo."""
    colluding_silos: plan.NaturalNumber = 0
    """Colluding silos of a round, whose noise does not count; 1 for honest-but-curious silos (N-1)."""
    own_noise_only: bool = False
    """Sound mode only: account for each silo's own noise alone, for any number of local steps."""
    fused_steps: tuple[plan.Count, ...] = ()
    """Local steps of each silo for every noised step of the others, with its clip norm divided by as many and noise in
    the last; as_published with gaussian noise, poisson sampling and plain sgd only; empty: all 1."""


class SubjectConfig(Section):
    """Algorithms that sample whole subjects: subject_release (all keys), subject_sampling (the first two) and uldp_fl
    (sampling_probability and weights)."""

    sampling_probability: plan.Probability = plan.SubjectSettings.sampling_probability
    """Probability q_s that a subject takes part; 1: everybody does."""
    items: plan.Count | None = None
    """Most items G of a sampled subject at a silo, drawn anew each time; null: all of them."""
    trust: plan.TrustModel = plan.TrustModel.LOCAL
    """Who sees what: every silo's noisy sum (local), their sum alone (secure_aggregation), or a trusted server the
    silos' sums before it adds the noise (central)."""
    weights: plan.BudgetWeights = plan.SubjectSettings.weights
    """How a subject's clip norm is split over its silos: equally, by its items there, or in one part for each silo that
    may hold it (fixed: no silo asks another)."""


class OptimizerConfig(Section):
    """Local optimiser, applied to the noisy gradient."""

    name: Literal["sgd", "momentum", "adam"] = "sgd"
    """Local optimiser."""
    learning_rate: plan.Positive = 0.1
    """Local learning rate."""
    momentum: plan.Decay = 0.9
    """Momentum (momentum), or beta1 (adam)."""


class TrainingConfig(Section):
    """Schedule of rounds and steps."""

    rounds: Annotated[int, Field(ge=1, le=1_000_000), plan.NotBool] = 100
    """Rounds R, before the horizontal rule shortens them."""
    local_steps: Annotated[int, Field(ge=1, le=1_000_000), plan.NotBool] | None = None
    """Mini-batches T of a silo in a round; null: local_epochs, each of ceil(items of the silo / batch_size)."""
    local_epochs: Annotated[int, Field(ge=1, le=10_000), plan.NotBool] = 1
    """Epochs of a round, where local_steps is null."""
    batch_size: Annotated[int, Field(ge=1, le=10_000_000), plan.NotBool] = 512
    """Mini-batch size B (its expectation with Poisson sampling)."""
    sampling_fraction: plan.Probability | None = None
    """Poisson probability q of an item at every silo, for silos of very different sizes; an epoch is ceil(1/q) steps.
    null: batch_size over the silo's items."""
    sampling: Literal[plan.SamplingMethod.POISSON, plan.SamplingMethod.FIXED_BATCH_SIZE] = plan.SamplingMethod.POISSON
    """A coin for each item, or exactly batch_size items without replacement."""
    silos_per_round: plan.Count | None = None
    """Silos s that take part in a round; null: all."""
    silo_choice: plan.SiloChoice = plan.PlanSettings.silo_choice
    """silos_per_round: the silos in turn, each as often as all others (public; its data are charged its own rounds), or
    drawn anew in every round as in the papers (charged for the draws; integer noise all rounds)."""
    optimizer: OptimizerConfig = OptimizerConfig()
    """Local optimiser."""
    averaged_rounds: plan.Probability | None = None
    """The mean of the models of this last part of the rounds is evaluated and saved, which costs no privacy; null: the
    last model."""
    evaluate_every: plan.Count = 1
    """Evaluate after every so many rounds, and after the last."""
    evaluation_items: plan.Count | None = None
    """Evaluate on so many of the pooled test items, and of the validation items, drawn once a seed; null: on all."""


class ModelConfig(Section):
    """The model that is trained; the text ``name`` is accepted in place of the mapping."""

    name: ModelName | None = None
    """leaf_cnn, small_cnn, logistic (convex), or a linear head on fixed features, scattering_head, stroke_head or
    handwriting_head (FEMNIST); leaf_lstm, small_lstm, char_ngram (convex) or english_head (Shakespeare); null: LEAF's.
    """
    parameters: dict[ParameterName, bool | int | float | str] = Field(default={}, max_length=32)
    """Arguments of the model's constructor that differ from its defaults."""


class PerformanceConfig(Section):
    """Speed and memory only: nothing here changes a result or enters a run id."""

    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$")] = "auto"
    """auto, cpu, cuda or cuda:N."""
    threads: Annotated[int, Field(ge=1, le=1024), plan.NotBool] = 1
    """CPU threads of a run."""
    physical_batch_size: plan.NaturalNumber = 0
    """Items in one forward and backward pass; 0: by the model's memory for an item, at least 192 on the CPU and 1,024
    on a GPU."""
    checkpoint_minutes: plan.NonNegative = 5.0
    """Checkpoint after a round where the last one is so many minutes old; 0: after every round."""


def normalised(partial: Mapping[str, Any]) -> dict[str, Any]:
    """``partial`` with the shorthands ``algorithm: name:variant`` and ``model: name`` written out."""
    content = dict(partial)
    if isinstance(content.get("algorithm"), str):
        name, _, variant = content["algorithm"].partition(":")
        content["algorithm"] = {"name": name, "variant": variant or None}  # None: the default one again
    if isinstance(content.get("model"), str):
        content["model"] = {"name": content["model"]}
    return content


class RunSections(Section):
    """All sections of a run. :class:`subjectdp.config.run.RunConfig` checks the rules between them."""

    @model_validator(mode="before")
    @classmethod
    def _written_out(cls, value: Any) -> Any:
        return normalised(value) if isinstance(value, Mapping) else value

    seed: plan.NaturalNumber = 0
    """Root seed of split, partition and initial model, and of sampling and noise where privacy.noise_source is
    reproducible."""
    data: DataConfig = DataConfig()
    """Data set, source and split."""
    partition: PartitionConfig = PartitionConfig()
    """Subjects' items over silos."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """Algorithm, or the text name:variant."""
    privacy: PrivacyConfig = PrivacyConfig()
    """Privacy target and accounting."""
    joint: JointConfig = JointConfig()
    """Noise under secure aggregation (joint_noise, subject_release)."""
    subject: SubjectConfig = SubjectConfig()
    """Sampled subjects (subject_release, subject_sampling, uldp_fl)."""
    training: TrainingConfig = TrainingConfig()
    """Rounds, steps and optimisers."""
    model: ModelConfig = ModelConfig()
    """Model."""
    performance: PerformanceConfig = PerformanceConfig()
    """Speed and memory; never part of a run id."""
