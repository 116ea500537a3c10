"""Attack: Parsing or checking a config.pbtxt takes minutes, because it contains a hundred thousand dims, deeply nested
braces or endless ensemble steps.

Defence: At most 256 KiB of the file are read, the steps are processed in a single pass, and each name is compared with
only a few others.

Outcome: The check takes a few seconds at most. Before the fix, an ensemble of 2,000 steps with wrong names took 98 s.
"""

import time

import pytest

from attacks.repositories import problems

MAX_CONFIG_BYTES = 256 << 10


def ensemble(count, step):
    steps = "".join(step(number) for number in range(count))
    ends = (
        'input { name: "t0" data_type: TYPE_FP32 dims: [ 1 ] }\noutput { name: "end" data_type: TYPE_FP32 dims: [ 1 ] }'
    )
    return f'platform: "ensemble"\n{ends}\nensemble_scheduling {{ {steps} }}'


def step(model, inputs, outputs):
    maps = f'input_map {{ key: "a" value: "{inputs}" }} output_map {{ key: "b" value: "{outputs}" }}'
    return f'step {{ model_name: "{model}" {maps} }}\n'


BOMBS = {
    "dims": f'backend: "pixprep"\ninput {{ name: "x" data_type: TYPE_UINT8 dims: [ {",".join(["1"] * 120_000)} ] }}',
    "braces": "model_transaction_policy " + "{" * 200_000,
    "brackets": "version_policy { specific { versions: " + "[" * 200_000,
    "strings": 'name: "' + '" "' * 80_000 + '"',
    "parameters": "".join(f'parameters {{ key: "{n}" value {{ }} }}\n' for n in range(7_000)),
    "one name again and again": 'backend: "pixprep"\n' * 13_000,
    "steps of no model": ensemble(1_000, lambda n: step(f"model{n}", f"t{n}", f"t{n + 1}")),
    "steps backwards": ensemble(1_000, lambda n: step("m", f"t{1000 - n}", f"t{1001 - n}")),
    "steps in a circle": ensemble(1_000, lambda n: step("m", f"t{n}", f"t{(n + 1) % 1000}")),
    "steps with names that are nearly right": ensemble(1_000, lambda n: step("m", f"taken{n}", f"given{n}")),
    "an ensemble of itself": ensemble(1_000, lambda n: step("e", f"t{n}", f"t{n + 1}")),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_configuration_is_checked_in_seconds(models, bomb):
    folder = models / ("e" if "ensemble" in BOMBS[bomb] else "m")
    (folder / "1").mkdir(parents=True, exist_ok=True)
    assert len(BOMBS[bomb]) < MAX_CONFIG_BYTES
    (folder / "config.pbtxt").write_text(BOMBS[bomb])
    start = time.process_time()
    assert problems(models)
    assert time.process_time() - start < 40
