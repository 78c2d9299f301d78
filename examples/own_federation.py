"""A federation of one's own with a stated ε per person: plain torch, three silos, people at several of them."""

import copy
from collections import Counter

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import subjectdp

ROUNDS, STEPS, BATCH, CAP, TARGET = 10, 5, 60, 2, 8.0


def silo_data(items: int, people: int, seed: int) -> tuple[TensorDataset, list[int]]:
    """Items with a label that depends on two features, and the person of each. Put your own data here."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(items, 8, generator=generator)
    owners = torch.randint(0, people, (items,), generator=generator)
    return TensorDataset(inputs, (inputs[:, 0] + inputs[:, 1] > 0).long()), owners.tolist()


def main() -> tuple[float, float]:
    """Trains; returns the test accuracy and ε of a person over all silos."""
    torch.manual_seed(0)
    silos = {"north": silo_data(900, 700, 1), "south": silo_data(1500, 700, 2), "west": silo_data(1200, 400, 3)}
    counts = Counter((person, name) for name, (_, owners) in silos.items() for person in owners)

    schedule = subjectdp.Schedule(rounds=ROUNDS, steps=STEPS, batch_size=BATCH, max_items_per_subject=CAP)
    report = subjectdp.calibrate("capped_item_dp", counts, schedule, epsilon=TARGET)
    print(report)
    model, workers = nn.Linear(8, 2), []
    for name, (data, owners) in silos.items():
        own = copy.deepcopy(model)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.5)
        noise = report.noise_multipliers[name]
        settings = subjectdp.PrivacySettings(clip="item", noise_multiplier=noise, max_items_per_subject=CAP)
        loader, engine = DataLoader(data, batch_size=BATCH), subjectdp.SubjectPrivacyEngine()
        workers.append(engine.make_private(own, optimizer, nn.CrossEntropyLoss(), loader, owners, settings))
    for _ in range(ROUNDS):
        for private, optimizer, loss, loader in workers:
            private.module.load_state_dict(model.state_dict())
            for inputs, targets in loader.take(STEPS):
                loss(private(inputs), targets).backward()
                optimizer.step()
        states = [private.module.state_dict() for private, *_ in workers]
        model.load_state_dict({key: sum(state[key] for state in states) / len(states) for key in states[0]})
    inputs, labels = silo_data(2000, 1, 4)[0].tensors
    accuracy = float((model(inputs).argmax(1) == labels).float().mean())
    print(f"accuracy {accuracy:.1%} with epsilon {report.subject.epsilon:.2f} per person over all silos")
    return accuracy, report.subject.epsilon


if __name__ == "__main__":
    main()
