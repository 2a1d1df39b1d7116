"""The training script of a site."""

import nvflare.client as flare
import torch
from model import Net

flare.init()
draws = torch.Generator().manual_seed(int(flare.get_site_name()[-1]))
x, y = torch.randn(24, 5, generator=draws), torch.randint(3, (24,), generator=draws)
net = Net()
while flare.is_running():
    received = flare.receive()
    net.load_state_dict({name: torch.as_tensor(value) for name, value in received.params.items()})
    optimizer, steps = torch.optim.SGD(net.parameters(), lr=0.1), 0
    for _ in range(2):
        for rows in torch.arange(24).split(8):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            steps += 1
    meta = {"NUM_STEPS_CURRENT_ROUND": steps}
    flare.send(flare.FLModel(params=net.state_dict(), metrics={"loss": float(loss)}, meta=meta))
