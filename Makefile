# SPDX-License-Identifier: Apache-2.0
# gpushare. `make demo` and `make test` install what they need; `make help` lists every target.

VERSION  ?= 1.0.0
PREFIX   ?= /usr/local
# SANITIZE=address (with undefined) or thread builds in a folder of its own.
SANITIZE ?=
# ARCH=amd64 or arm64 builds with the packages of scripts/debian-root in a folder of its own.
ARCH     ?=
B        := build$(if $(ARCH),/$(ARCH))$(if $(SANITIZE),/$(SANITIZE))
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))
MAKEFLAGS += --no-print-directory

# -- Folders: each folder of src/ and tools/ is an archive, and uses the folders named here --

TOOLS          := kube-sim replay
FOLDERS        := base wire domain gpu placement kube core apisync view extender node cli setup $(TOOLS)
USES_base      :=
USES_wire      := base
USES_domain    := base
USES_gpu       := base
USES_placement := domain base
USES_kube      := wire domain base
USES_core      := placement domain base
USES_apisync   := core placement kube wire domain base
USES_view      := core placement wire domain base
USES_extender  := view apisync core placement kube wire domain base
USES_node      := kube gpu wire domain base
USES_cli       := view apisync core placement kube wire domain base
USES_setup     := kube wire domain base
USES_kube-sim  := wire base
USES_replay    := placement wire domain base
PKGS_wire      := libcurl libmicrohttpd gnutls libnghttp2 yaml-0.1
PKGS_kube      := jansson libprotobuf-c
PKGS_kube-sim  := jansson zlib

# -- Programs: the folder of each, and the file with its main function --

PROGRAMS                        := gpushare-extender gpushare-node kubectl-inspect-gpushare \
                                   gpushare-setup kube-sim gpushare-replay
FOLDER_gpushare-extender        := extender
FOLDER_gpushare-node            := node
FOLDER_kubectl-inspect-gpushare := cli
FOLDER_gpushare-setup           := setup
FOLDER_kube-sim                 := kube-sim
FOLDER_gpushare-replay          := replay
# The names of 1.0 for the modes of gpushare-node: links to it, also in the manual.
NODE_NAMES := gpushare-device-plugin scv-agent
folder_path = $(if $(filter $(1),$(TOOLS)),tools,src)/$(1)
main_of     = $(if $(filter $(FOLDER_$(1)),$(TOOLS)),tools/$(FOLDER_$(1))/main,src/cmd/$(1))

# -- Flags --

CC       := $(if $(filter fuzzer,$(SANITIZE)),clang,gcc)
AR       := gcc-ar
RUN      := # what runs a program of ARCH on this machine
ifneq ($(ARCH),)
CPU_amd64   := x86_64
CPU_arm64   := aarch64
CPU         := $(or $(CPU_$(ARCH)),$(error ARCH=$(ARCH): expected amd64 or arm64))
SYSROOT     := $(or $(shell scripts/debian-root $(ARCH)),$(error ARCH=$(ARCH) needs scripts/install-deps.sh --release))
override CC := $(if $(filter ccache,$(CC)),ccache) $(CPU)-linux-gnu-gcc --sysroot=$(SYSROOT) -ffile-prefix-map=$(SYSROOT)=
AR          := $(CPU)-linux-gnu-gcc-ar
RUN         := $(if $(filter $(CPU),$(shell uname -m)),,qemu-$(CPU) -L $(SYSROOT))
export PKG_CONFIG_SYSROOT_DIR := $(SYSROOT)
export PKG_CONFIG_LIBDIR      := $(SYSROOT)/usr/lib/$(CPU)-linux-gnu/pkgconfig:$(SYSROOT)/usr/share/pkgconfig
endif
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wwrite-strings -Wformat=2 -Wundef -Wvla -Werror \
            $(if $(filter clang,$(CC)),-Wno-format-nonliteral,-Wno-format-truncation)
HARDEN   := -D_FORTIFY_SOURCE=2 -fstack-protector-strong
SAN_address  := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SAN_thread   := -fsanitize=thread
# Of `make fuzz`, `make coverage` and `make mutants`, which set SANITIZE themselves.
SAN_fuzzer   := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
SAN_coverage := --coverage -fprofile-update=atomic
SAN_mutants  := -DMUTANTS -Itest
SAN      := $(if $(SANITIZE),$(or $(SAN_$(SANITIZE)),$(error SANITIZE=$(SANITIZE): expected address or thread)))
# A program does not contain the path of the folder it was built in.
OPTIM    := -O2 -g -ffile-prefix-map=$(CURDIR)=. -fno-omit-frame-pointer $(if $(SANITIZE),-O1,$(HARDEN)) \
            $(if $(filter coverage,$(SANITIZE)),-O0) $(if $(filter mutants,$(SANITIZE)),-O2)
CPPFLAGS += -D_GNU_SOURCE -DGPUSHARE_VERSION='"$(VERSION)"' -Iinclude -Isrc -Itools -I$(B)/gen -MMD -MP
CFLAGS   += -std=gnu11 $(OPTIM) -fPIE $(WARN) $(SAN)
LDFLAGS  += -pie -Wl,-z,relro,-z,now $(SAN)

with_uses = $(1) $(USES_$(1))
archives  = $(patsubst %,$(B)/lib/%.a,$(call with_uses,$(1)))
pkgs      = $(sort $(foreach f,$(call with_uses,$(1)),$(PKGS_$(f))))
# pkg-config runs in recipes only: on a fresh machine `make deps` installs it.
libs      = $(if $(call pkgs,$(1)),$$(pkg-config --libs $(call pkgs,$(1)))) -pthread
objects   = $(patsubst %.c,$(B)/%.o,$(1))

# -- Rules: objects, archives, programs, manual pages --

BINARIES := $(patsubst %,$(B)/%,$(PROGRAMS) $(NODE_NAMES))
PAGES    := $(patsubst %.in,$(B)/%,$(wildcard man/*.in))
.DEFAULT_GOAL := all
.SECONDARY:

$(B)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(if $(filter test/%,$<),-Itest) $(CFLAGS) -c -o $@ $<
-include $(shell find $(B)/src $(B)/tools $(B)/gen $(B)/test -name '*.d' 2>/dev/null)

# $(B)/version is newer than what names another version.
$(shell mkdir -p $(B); echo '$(VERSION)' | cmp -s - $(B)/version || echo '$(VERSION)' >$(B)/version)
$(patsubst %.c,$(B)/%.o,$(shell grep -rlw GPUSHARE_VERSION --include='*.c' src tools test)): $(B)/version

define archive
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && $(AR) rcs $@ $(filter %.o,$^)
endef
# LIBS: of the target.
define link
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LIBS)
endef

define folder_rules
OBJS_$(1) := $(call objects,$(filter-out %/main.c,$(wildcard $(call folder_path,$(1))/*.c))) \
             $(patsubst src/%.proto,$(B)/gen/%.pb-c.o,$(wildcard src/$(1)/*.proto))
$(B)/lib/$(1).a: $$(OBJS_$(1)) $(call folder_path,$(1)) # the folder: a source may be gone
	$$(archive)
endef
$(foreach f,$(FOLDERS),$(eval $(call folder_rules,$(f))))

define program_rules
$(B)/$(1): $(B)/$(call main_of,$(1)).o $(call archives,$(FOLDER_$(1)))
	$$(link)
$(B)/$(1): private LIBS = $$(call libs,$(FOLDER_$(1)))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rules,$(p))))
$(NODE_NAMES:%=$(B)/%): $(B)/gpushare-node # a file of an earlier build goes
	$(call say,LN,$@)
	$(Q)ln -sf gpushare-node $@

# x.proto becomes gen/x.pb-c.c and its header, compiled without warnings.
$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: src/%.proto
	$(call say,PROTO,$<)
	$(Q)mkdir -p $(@D) && protoc-c -I$(<D) --c_out=$(@D) $<
$(B)/gen/%.o: $(B)/gen/%.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -w -c -o $@ $<
$(OBJS_kube): | $(patsubst src/%.proto,$(B)/gen/%.pb-c.h,$(wildcard src/kube/*.proto))

# The files of the web page become part of the archive `view`.
WEB_FILES := $(sort $(wildcard src/view/web/*))
$(B)/gen/view/web_files.c: scripts/embed $(WEB_FILES)
	$(call say,EMBED,$@)
	$(Q)mkdir -p $(@D) && scripts/embed $(WEB_FILES) >$@.new && mv $@.new $@
$(B)/lib/view.a: $(B)/gen/view/web_files.o

# The options of a manual page come from --help of its program.
program_of = $(if $(filter %/gpushare-install.8,$(1)),scripts/install,$(B)/$(basename $(notdir $(1))))
define page_rules
$(1): $(1:$(B)/%=%.in) $(call program_of,$(1)) scripts/man $(B)/version
	$$(call say,MAN,$$@)
	$(Q)mkdir -p $$(@D) && RUN='$(if $(filter scripts/%,$(call program_of,$(1))),,$(RUN))' scripts/man $(call program_of,$(1)) $$< $(VERSION) >$$@.new && mv $$@.new $$@
endef
$(foreach p,$(PAGES),$(eval $(call page_rules,$(p))))

# libgpushare-limit.so is loaded into programs of any C library: it links nothing, and no sanitizer.
# It has code for x86-64 and AArch64. The functions of outline atomics are in no library. A folder
# `limit` beside the library would be that of a pod's limits, so its objects are elsewhere.
LIMIT_CC    := $(if $(filter clang,$(CC)),gcc,$(CC))
LIMIT_CPU   := $(firstword $(subst -, ,$(shell $(LIMIT_CC) -dumpmachine)))
LIMIT       := $(if $(filter x86_64 aarch64,$(LIMIT_CPU)),$(B)/libgpushare-limit.so)
LIMIT_FLAGS := -std=gnu11 -O2 -g -ffile-prefix-map=$(CURDIR)=. -fPIC -ffreestanding -fvisibility=hidden \
               -fno-stack-protector -fno-tree-loop-distribute-patterns $(WARN) \
               $(if $(filter aarch64,$(LIMIT_CPU)),-mno-outline-atomics)
$(B)/preload/%.o: src/limit/%.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(LIMIT_CC) -D_GNU_SOURCE -Iinclude -Isrc -MMD -MP $(LIMIT_FLAGS) -c -o $@ $<
-include $(wildcard $(B)/preload/*.d)
$(B)/libgpushare-limit.so: $(patsubst src/limit/%.c,$(B)/preload/%.o,$(wildcard src/limit/*.c))
	$(call say,LD,$@)
	$(Q)$(LIMIT_CC) -shared -nostdlib -Wl,-Bsymbolic,-z,relro,-z,now,-z,defs -o $@ $^

# gpushare-card-check, in the image of the device plugin. Its guest is built as any CUDA program is.
CARD_CHECK := $(B)/gpushare-card-check $(B)/gpushare-card-guest
$(B)/gpushare-card-check: $(call objects,$(patsubst %,tools/card-check/%.c,main driver_limit)) $(call archives,gpu)
	$(link)
$(B)/gpushare-card-check: private LIBS = $(call libs,gpu)
$(B)/gpushare-card-guest: tools/card-check/guest.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(LIMIT_CC) -O2 -g -ffile-prefix-map=$(CURDIR)=. -fPIE -pie -Wl,-z,relro,-z,now $(WARN) -o $@ $< -ldl

include test/rules.mk # the test programs: TESTS, SUITES, ...

# -- Targets: `make help` prints the text behind ## --

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)

all: $(BINARIES) $(LIMIT) $(CARD_CHECK) $(PAGES) ## Build the programs and manual pages into build/ (this is the default)
	@:

deps: ## Install the Debian packages that building and testing need
	$(Q)scripts/install-deps.sh
demo: deps ## Show the extender and scv-agent at work on kube-sim; KEEP=1 leaves them running
	$(Q)$(MAKE) all
	$(Q)BUILD=$(B) KEEP=$(KEEP) scripts/demo

test: deps ## Build and run every test that needs no download; SANITIZE=address|thread
	$(Q)$(MAKE) check
check: $(if $(T),$(T_PROGRAMS),programs-of-check) ## Run the tests; T=core/test_bind or T=core/test_bind:NAME selects; TEST_JOBS=N
	$(Q)TEST_JOBS=$${TEST_JOBS:-$$(($$(nproc) + 1))} scripts/run-tests $(B) $(or $(T:%=$(B)/test/%),$(TESTS))
unit: $(UNIT_PROGRAMS) $(B)/walk $(B)/simulate ## Run the tests without processes and sockets in a minute
	$(Q)TEST_JOBS=$${TEST_JOBS:-$$(nproc)} scripts/run-tests $(B) $(UNIT_PROGRAMS) \
		"$(B)/walk --scenario answers" "$(B)/simulate --seeds 100 --steps 1000000"
programs-of-check: $(BINARIES) $(LIMIT) $(PAGES) $(TESTS) ## Build the programs that check runs

test-arm64: ## Run the unit tests that depend on no port and no time as arm64 programs, under qemu-user
	$(Q)scripts/install-deps.sh --release
	$(Q)$(MAKE) ARCH=arm64 check-arch
check-arch: $(ARCH_TESTS)
	$(Q)TEST_RUN='$(RUN)' TEST_JOBS=$${TEST_JOBS:-$$(nproc)} scripts/run-tests $(B) $(ARCH_TESTS)

test-upgrade: ## Test the upgrade from the programs of a former revision, and the way back; FROM=v1.0.0
	$(Q)rm -rf build/former && mkdir -p build/former && git archive $(FROM) | tar -xC build/former
	$(Q)env -u MAKEFLAGS -u MAKELEVEL $(MAKE) -j$$(nproc) -C build/former
	$(Q)$(MAKE) $(BINARIES) $(LIMIT) $(B)/test/integration/test_upgrade
	$(Q)UPGRADE_FROM=$(CURDIR)/build/former/build scripts/run-tests $(B) $(B)/test/integration/test_upgrade

e2e: ## Test on the real Kubernetes, release K8S=1.37; E2E=short or E2E="requests tls" selects
	$(Q)scripts/install-deps.sh --e2e
	$(Q)scripts/e2e-programs $(if $(K8S),--k8s $(K8S)) kube-apiserver kube-controller-manager \
		kube-scheduler kubectl kwok $(E2E_TOOLS) >/dev/null
	$(Q)$(MAKE) check-e2e
check-e2e: $(BINARIES) $(B)/e2e-service $(E2E_PROGRAMS)
	$(Q)BUILD=$(B) E2E_K8S=$(K8S) TEST_TIMEOUT=1200 scripts/run-tests $(B) $(E2E_PROGRAMS)

e2e-node: ## Test on a real kubelet and containerd, as root; NODE=short or NODE="node chart" selects; E2E_NODE=real; FROM=v1.0.0: upgrade
	$(Q)scripts/install-deps.sh --e2e-node
	$(Q)scripts/e2e-programs $(if $(K8S),--k8s $(K8S)) kube-apiserver kube-controller-manager \
		kube-scheduler kubectl kwok kubelet kube-proxy helm $(NODE_TOOLS) >/dev/null
	$(if $(FROM),$(Q)rm -rf build/former && mkdir -p build/former && git archive $(FROM) | tar -xC build/former && \
		env -u MAKEFLAGS -u MAKELEVEL $(MAKE) -C build/former images VERSION=former)
	$(Q)$(MAKE) check-e2e-node
managed: ## Build what scripts/cluster up --managed runs, a cluster as a managed service gives it
	$(Q)scripts/install-deps.sh --e2e-node
	$(Q)$(MAKE) images $(MANAGED_PARTS)
check-e2e-node: images $(MANAGED_PARTS) $(NODE_SUITES) $(FAKE_NVML) $(NODE_IMAGES)
	$(Q)BUILD=$(B) E2E_NODE=$(E2E_NODE) E2E_K8S=$(K8S) FORMER_IMAGES=$(CURDIR)/build/former/build/images \
		TEST_TIMEOUT=1200 scripts/run-tests $(B) $(NODE_SUITES)

test-gpu: $(CARD_CHECK) $(LIMIT) ## Report on the driver and cards of this machine; skipped without a card
	$(Q)$(B)/gpushare-card-check
nvidia: deps ## Compare with NVIDIA's headers and libraries, which it downloads; NVIDIA=short
	$(Q)$(MAKE) all $(FAKE_CUDA)
	$(Q)test/nvidia/run $(B) $(NVIDIA)
peers: ## Test our gRPC against @grpc/grpc-js from npm
	$(Q)scripts/install-deps.sh --peers
	$(Q)$(MAKE) $(PEERS)
	$(Q)modules=$$(scripts/npm-modules test/peers build/peers) && GPUSHARE_PEERS=$$modules \
		scripts/run-tests $(B) $(PEERS)
web-test: ## Test the web page in headless Chromium with playwright-core from npm
	$(Q)scripts/install-deps.sh --web
	$(Q)$(MAKE) $(B)/kube-sim $(B)/gpushare-extender $(B)/kubectl-inspect-gpushare
	$(Q)modules=$$(scripts/npm-modules test/web build/web) && NODE_PATH=$$modules \
		scripts/run-tests $(B) test/web/test_page.js

simulate: $(B)/simulate ## Run the deterministic simulator; SEED=7 STEPS=100000
	$(Q)$(B)/simulate $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))
mutants: deps ## Plant each fault of test/mutants.h and check that the walk or the simulator finds it
	$(Q)$(MAKE) SANITIZE=mutants build/mutants/walk build/mutants/simulate
	$(Q)scripts/mutants build/mutants $(MUTANTS)
fuzz: ## Run the fuzz targets under libFuzzer; FUZZ_SECONDS=60 each, FUZZ="jread apisync" selects
	$(Q)scripts/install-deps.sh --fuzz
	$(Q)$(MAKE) SANITIZE=fuzzer fuzzers
	$(Q)scripts/fuzz build/fuzzer build/fuzz $(FUZZ)
fuzzers: $(FUZZERS)
fuzz-jread: deps ## Compare the JSON reader with jansson on random inputs; RUNS=100000000 SEED=1
	$(Q)$(MAKE) $(B)/test/fuzz/fuzz_jread
	$(Q)$(B)/test/fuzz/fuzz_jread $(or $(RUNS),100000000) $(or $(SEED),1)

coverage: deps ## Report the lines of src/ and tools/ that the tests run
	$(Q)scripts/coverage build/coverage

bench: deps ## Measure docs/benchmarks.md; BENCH_ARGS="--nodes 5000 --rounds 3"
	$(Q)$(MAKE) bench-run BENCH=serve
bench-watchers: deps ## Measure filter with and without 500 watches; BENCH_ARGS="--nodes 5000"
	$(Q)$(MAKE) bench-run BENCH=watchers
bench-cluster: ## Measure pods/s through the real kube-scheduler; BENCH_ARGS="--nodes 5000 --pods 1000"
	$(Q)scripts/install-deps.sh --e2e
	$(Q)scripts/e2e-programs >/dev/null
	$(Q)$(MAKE) bench-run BENCH=cluster
bench-openb: ## Measure the packing of a trace in the real cluster; OPENB_DIR= BENCH_ARGS="--seeds 3"
	$(Q)scripts/install-deps.sh --e2e
	$(Q)scripts/e2e-programs >/dev/null
	$(Q)$(MAKE) bench-run BENCH="openb $(if $(OPENB_DIR),--nodes $(OPENB_DIR)/openb_node_list_gpu_node.csv \
		--pods $(OPENB_DIR)/openb_pod_list_default.csv)"
bench-hostile: deps ## Serve kube-scheduler under 1,000 hostile clients; BENCH_ARGS="--tls=off --time 60s"
	$(Q)$(MAKE) bench-run BENCH=hostile
bench-run: $(BINARIES) $(B)/bench
	$(Q)BUILD=$(B) GPUSHARE_BUILD=$(B) $(B)/bench $(BENCH) $(BENCH_ARGS)
bench-limit: deps ## Measure what libgpushare-limit.so adds to calls; fails above its aims
	$(Q)$(MAKE) $(LIMIT) $(LIMIT_GUESTS) $(B)/test/limit/test_preload
	$(Q)LIMIT_BENCH=1 scripts/run-tests $(B) $(B)/test/limit/test_preload
race-limit: deps ## Race 64 processes with random SIGKILLs against a limit; RACE_SECONDS=60
	$(Q)$(MAKE) $(LIMIT) $(LIMIT_GUESTS) $(B)/test/limit/test_race
	$(Q)RACE_SECONDS=$(or $(RACE_SECONDS),60) scripts/run-tests $(B) $(B)/test/limit/test_race
soak: deps ## Run everything at once and check memory, descriptors and threads; SOAK_TIME=10m
	$(Q)$(MAKE) bench-run BENCH="soak $(if $(SOAK_TIME),--time $(SOAK_TIME))"

install: all ## Install programs, manual pages and manifests; PREFIX=/usr/local DESTDIR=
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin lib/gpushare share/gpushare share/man/man1 share/man/man8)
	install -m 755 $(PROGRAMS:%=$(B)/%) scripts/kubectl_complete-inspect-gpushare $(DESTDIR)$(PREFIX)/bin
	install -m 755 scripts/install $(DESTDIR)$(PREFIX)/bin/gpushare-install
	$(if $(LIMIT),install -m 644 $(LIMIT) $(DESTDIR)$(PREFIX)/lib/gpushare)
	install -m 755 $(CARD_CHECK) $(DESTDIR)$(PREFIX)/lib/gpushare
	install -m 644 $(filter %.1,$(PAGES)) $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(filter %.8,$(PAGES)) $(DESTDIR)$(PREFIX)/share/man/man8
	for n in $(NODE_NAMES); do ln -sf gpushare-node $(DESTDIR)$(PREFIX)/bin/$$n && \
		ln -sf gpushare-node.8 $(DESTDIR)$(PREFIX)/share/man/man8/$$n.8; done
	cp -r policy manifests $(DESTDIR)$(PREFIX)/share/gpushare
IMAGES ?= $(B)/images
images: all ## Build an OCI image of each cluster program without a daemon or root; IMAGES=build/images
	$(Q)rm -rf $(IMAGES)/installed
	$(Q)$(MAKE) install DESTDIR=$(IMAGES)/installed PREFIX=/usr/local >/dev/null
	$(Q)scripts/images $(IMAGES)/installed $(VERSION) $(IMAGES)
	$(Q)rm -rf $(IMAGES)/installed
krew: $(B)/kubectl-inspect-gpushare ## Pack the kubectl plugin and its krew manifest; KREW_URL=https://folder
	$(Q)scripts/krew $(B)/krew $(VERSION) $(or $(KREW_URL),https://localhost) \
		$(or $(ARCH),$$(dpkg --print-architecture))=$(B)/kubectl-inspect-gpushare=$(SYSROOT)

# What is published, for both architectures: docs/releasing.md.
RELEASE     := build/release
RELEASE_OF   = amd64=build/amd64=$(shell scripts/debian-root amd64) arm64=build/arm64=$(shell scripts/debian-root arm64)
release: ## Write everything to publish to build/release; REGISTRY=host/path RELEASE_URL= PROJECT_URL= SIGN_KEY=
	$(Q)test -n "$(REGISTRY)" || { echo 'make release: REGISTRY is missing, such as REGISTRY=registry.example/gpushare' >&2; exit 1; }
	$(Q)scripts/install-deps.sh --release
	$(Q)for arch in amd64 arm64; do $(MAKE) ARCH=$$arch installed || exit 1; done
	$(Q)scripts/release/all $(VERSION) $(REGISTRY) $(or $(RELEASE_URL),https://localhost) $(RELEASE) $(RELEASE_OF)
	$(Q)$(if $(SIGN_KEY),scripts/release/sign $(RELEASE) $(SIGN_KEY),echo '$(RELEASE) is not signed: SIGN_KEY is missing')
installed: all
	$(Q)rm -rf $(B)/installed
	$(Q)$(MAKE) install DESTDIR=$(B)/installed PREFIX=/usr/local >/dev/null
test-release: ## Build the release twice, publish it to a registry on this machine and install from there
	$(Q)$(MAKE) release REGISTRY=localhost/gpushare
	$(Q)scripts/e2e-programs helm >/dev/null
	$(Q)$(MAKE) check-release
check-release: $(RELEASE_SUITES)
	$(Q)scripts/run-tests $(B) $(RELEASE_SUITES)

format: ## Format every source with clang-format 14
	$(Q)clang-format-14 -i $$(git ls-files '*.c' '*.h')
clean: ## Remove build/
	rm -rf build
help: ## Print this list
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/\1\t\2/p' Makefile | awk -F'\t' '{ printf "make %-17s %s\n", $$1, $$2 }'
	@echo 'V=1 prints the commands.'
