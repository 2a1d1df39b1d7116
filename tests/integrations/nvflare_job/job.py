"""A job of two sites and two rounds, recorded below the folder that is named: job.py FOLDER [plain | broken].

A plain one is not recorded, a broken one has recorders that cannot write.
"""

import sys

from model import Net
from nvflare.app_common.filters.exclude_vars import ExcludeVars
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.client.config import TransferType
from nvflare.recipe import SimEnv

from fedxray.integrations.nvflare import record

if __name__ == "__main__":
    out, how = sys.argv[1], "".join(sys.argv[2:])
    recipe = FedAvgRecipe(
        name="recorded", model=Net(), min_clients=2, num_rounds=2, train_script="client.py",
        params_transfer_type=TransferType.DIFF, aggregator_data_kind="WEIGHT_DIFF",
    )  # fmt: skip
    recipe.add_client_output_filter(ExcludeVars(exclude_vars=["norm.bias"]), tasks=["train"])  # no such array
    recipe.add_client_output_filter(PercentilePrivacy(percentile=50, gamma=1.0), tasks=["train"])
    if how != "plain":
        below = "/dev/null" if how == "broken" else out
        record(recipe, f"{below}/sites", server=f"{below}/server")
    recipe.execute(SimEnv(num_clients=2, workspace_root=f"{out}/workspace"))
