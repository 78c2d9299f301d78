"""Flower with a stated ε per person: three silos under subjectdp's noise. Needs `pip install 'flwr[simulation]'`."""

from collections import Counter

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader, TensorDataset

import subjectdp

ROUNDS, STEPS, BATCH, CAP, SILOS = 10, 5, 60, 2, range(3)


def silo_data(silo: int) -> tuple[TensorDataset, list[int]]:
    """Items with a label that depends on two features, and the person of each. Put your own data here."""
    generator = torch.Generator().manual_seed(silo)
    inputs = torch.randn(1200, 8, generator=generator)
    owners = torch.randint(700, (1200,), generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()), owners.tolist()


counts = Counter((person, silo) for silo in SILOS for person in silo_data(silo)[1])
schedule = subjectdp.Schedule(rounds=ROUNDS, steps=STEPS, batch_size=BATCH, max_items_per_subject=CAP)
report = subjectdp.calibrate("capped_item_dp", counts, schedule, epsilon=8.0)
noise = [report.noise_multipliers[str(silo)] for silo in SILOS]
client, server, strategy = (
    ClientApp(),
    ServerApp(),
    FedAvg(fraction_evaluate=0.0, min_available_nodes=3, weighted_by_key="one"),
)


@client.train()
def train(message: Message, context: Context) -> Message:
    """The local steps of one silo in one round, each under new secret noise."""
    silo = int(context.node_config["partition-id"])
    (data, owners), model = silo_data(silo), torch.nn.Linear(8, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    settings = subjectdp.PrivacySettings(clip="item", noise_multiplier=noise[silo], max_items_per_subject=CAP)
    private, optimizer, loss, loader = subjectdp.SubjectPrivacyEngine().make_private(
        model, optimizer, torch.nn.CrossEntropyLoss(), DataLoader(data, batch_size=BATCH), owners, settings
    )
    for inputs, targets in loader.take(STEPS):
        loss(private(inputs), targets).backward()
        optimizer.step()
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"one": 1})})
    return Message(content, reply_to=message)


@server.main()
def serve(grid: Grid, context: Context) -> None:
    """Flower's FedAvg; every silo counts the same."""
    start = ArrayRecord(torch.nn.Linear(8, 2).state_dict())
    final = strategy.start(grid, start, num_rounds=ROUNDS).arrays.to_torch_state_dict()
    inputs, labels = silo_data(3)[0].tensors
    accuracy = float(((inputs @ final["weight"].T + final["bias"]).argmax(1) == labels).float().mean())
    print(f"accuracy {accuracy:.1%} with epsilon {report.subject.epsilon:.2f} per person over all silos")


if __name__ == "__main__":
    run_simulation(server, client, num_supernodes=len(SILOS))
