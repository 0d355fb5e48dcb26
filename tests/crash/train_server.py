"""The fork server of the crash tests, with all that `rewardctl train` imports loaded before."""

import runpy

import crash_server

crash_server.PRELOADED += (
    "torch._dynamo",  # the first optimizer imports it: seconds
    "rewardctl.data.tokenizer",
    "rewardctl.runs.train",
    "rewardctl.runs.validate",
    "tokenizers",
)

if __name__ == "__main__":
    own = crash_server.serve()
    if own is not None:
        crash_server.become(own)
        runpy.run_module("rewardctl", run_name="__main__", alter_sys=True)
