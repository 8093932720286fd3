# SPDX-License-Identifier: Apache-2.0
# gpushare: `make demo` and `make test` do everything; `make help` lists the rest.

VERSION  ?= 0.1.0
PREFIX   ?= /usr/local
SANITIZE ?=
B        := build$(if $(SANITIZE),/$(SANITIZE))
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-5s %s\n' $(1) $(2))

# The house: each folder of src/ becomes an archive; it may use the folders named here.
FOLDERS        := base wire domain gpu placement kube core apisync extender agent plugin sim replay cli setup
USES_base      :=
USES_wire      := base
USES_domain    := base
USES_gpu       := base
USES_placement := domain base
USES_kube      := wire domain base
USES_core      := placement domain base
USES_apisync   := core placement kube wire domain base
USES_extender  := apisync core placement kube wire domain base
USES_agent     := gpu kube wire domain base
USES_plugin    := gpu kube wire domain base
USES_sim       := wire base
USES_replay    := placement wire domain base
USES_cli       := apisync core placement kube wire domain base
USES_setup     := kube wire domain base
PKGS_wire      := libcurl libmicrohttpd gnutls libnghttp2 yaml-0.1
PKGS_kube      := jansson libprotobuf-c
PKGS_extender  := jansson
PKGS_sim       := jansson zlib
PKGS_cli       := jansson
PKGS_setup     := jansson

# The programs, and the folder whose archive each one needs (with what that uses).
PROGRAMS                := gpushare-extender gpushare-device-plugin scv-agent kube-sim gpushare-replay \
                           kubectl-inspect-gpushare gpushare-setup
FOLDER_gpushare-extender := extender
FOLDER_gpushare-device-plugin := plugin
FOLDER_scv-agent         := agent
FOLDER_kube-sim          := sim
FOLDER_gpushare-replay   := replay
FOLDER_kubectl-inspect-gpushare := cli
FOLDER_gpushare-setup    := setup

CC       := $(if $(filter fuzzer,$(SANITIZE)),clang,gcc)
WARN     := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
            -Wwrite-strings -Wformat=2 -Wundef -Wvla -Werror \
            $(if $(filter clang,$(CC)),-Wno-format-nonliteral,-Wno-format-truncation)
# protoc-c's output is not ours to improve.
WARN_GENERATED := -w
HARDEN   := -D_FORTIFY_SOURCE=2 -fstack-protector-strong
SAN_address := -fsanitize=address,undefined -fno-sanitize-recover=undefined
SAN_thread  := -fsanitize=thread
# These two are not for people: `make fuzz` and `make coverage` build with them.
SAN_fuzzer  := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined
SAN_coverage := --coverage -fprofile-update=atomic
SAN      := $(if $(SANITIZE),$(or $(SAN_$(SANITIZE)),$(error SANITIZE is address or thread)))
# Nothing of where it was built gets into a program.
OPTIM    := -O2 -g -ffile-prefix-map=$(CURDIR)=. -fno-omit-frame-pointer $(if $(SANITIZE),-O1,$(HARDEN)) \
            $(if $(filter coverage,$(SANITIZE)),-O0)
CPPFLAGS += -D_GNU_SOURCE -DGPUSHARE_VERSION='"$(VERSION)"' -Iinclude -Isrc -I$(B)/gen -MMD -MP
CFLAGS   += -std=gnu11 $(OPTIM) -fPIE $(WARN) $(SAN)
LDFLAGS  += -pie -Wl,-z,relro,-z,now $(SAN)

all_of  = $(1) $(USES_$(1))
archives = $(patsubst %,$(B)/lib/%.a,$(call all_of,$(1)))
pkgs     = $(strip $(foreach f,$(call all_of,$(1)),$(PKGS_$(f))))
# Evaluated only in recipes: on a fresh machine pkg-config comes with the dependencies.
libs     = $(if $(call pkgs,$(1)),$$(pkg-config --libs $(sort $(call pkgs,$(1))))) -pthread

BINARIES := $(PROGRAMS:%=$(B)/%)
PAGES    := $(patsubst %.in,$(B)/%,$(wildcard man/*.in)) # manuals, of the program of that name
UNITS    := $(foreach f,$(FOLDERS),$(patsubst test/%.c,$(B)/test/%,$(wildcard test/$(f)/test_*.c)))
# Suites of make e2e; E2E=short: those that CI runs.
E2E_SHORT := requests agent plugin conformance burst faults choice replicas tls apiservice inspect \
             chart helm takeover install docs
E2E_SUITES := $(or $(filter-out short,$(E2E)),$(if $(filter short,$(E2E)),$(E2E_SHORT)),\
                $(patsubst test/e2e/test_%.c,%,$(wildcard test/e2e/test_*.c)))
ifneq ($(or $(K8S),1.35),1.35) # which is what kube-sim plays
E2E_SUITES := $(filter-out conformance,$(E2E_SUITES))
endif
E2E_PROGRAMS := $(E2E_SUITES:%=$(B)/test/e2e/test_%)
# What the suites want beside the control plane that scripts/e2e-programs builds anyway.
E2E_TOOLS := $(if $(filter chart helm docs,$(E2E_SUITES)),helm kubeconform)
SUITES   := $(patsubst test/%.c,$(B)/test/%,$(wildcard test/integration/test_*.c))
PEERS    := $(patsubst test/%.c,$(B)/test/%,$(wildcard test/peers/test_*.c))
FUZZERS  := $(patsubst test/%.c,$(B)/test/%,$(wildcard test/fuzz/fuzz_*.c))
# What test_allocations counts, and what test/walk/heap.c stands in for.
COUNTED  := malloc calloc realloc reallocarray aligned_alloc strdup
WRAPS    := $(COUNTED) free
BENCH    := main figures load server bodies ask counts
SOAK     := soak churn world vitals ask load server
WATCHERS := watchers load server bodies ask
SUPPORT  := $(patsubst %.c,$(B)/%.o,$(wildcard test/support/*.c))
# What suites of real programs link besides SUPPORT: what they share, and their folder's.
kit_of    = $(patsubst %.c,$(B)/%.o,$(wildcard test/kit/*.c) \
              $(filter-out test/$(1)/test_%,$(wildcard test/$(1)/*.c)))

.PHONY: all deps test check programs-of-check e2e check-e2e e2e-node check-e2e-node peers web-test \
        test-gpu simulate fuzz fuzzers fuzz-jread coverage mutants bench bench-cluster \
        bench-watchers soak demo install images krew clean help format
.DEFAULT_GOAL := all
all: $(BINARIES) $(PAGES)
	@:

define folder_rules
OBJS_$(1) := $$(patsubst %.c,$(B)/%.o,$$(wildcard src/$(1)/*.c)) \
             $$(patsubst src/%.proto,$(B)/gen/%.pb-c.o,$$(wildcard src/$(1)/*.proto))
$(B)/lib/$(1).a: $$(OBJS_$(1))
	$$(call say,AR,$$@)
	$(Q)mkdir -p $$(@D) && rm -f $$@ && gcc-ar rcs $$@ $$^
$(B)/test/$(1)/%: $(B)/test/$(1)/%.o $(SUPPORT) $(call archives,$(1))
	$$(call say,LD,$$@)
	$(Q)$(CC) $$(LDFLAGS) -o $$@ $$^ $$(call libs,$(1)) $$$$(pkg-config --libs check)
endef
$(foreach f,$(FOLDERS),$(eval $(call folder_rules,$(f))))
$(B)/test/extender/test_allocations: LDFLAGS += $(COUNTED:%=-Wl,--wrap=%)

define program_rule
$(B)/$(1): $(B)/src/cmd/$(1).o $(call archives,$(FOLDER_$(1)))
	$$(call say,LD,$$@)
	$(Q)$(CC) $(LDFLAGS) -o $$@ $$^ $$(call libs,$$(FOLDER_$(1)))
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$(p))))

# What --help says of the options becomes part of the page.
program_of = $(if $(filter %/gpushare-install.8,$(1)),scripts/install,$(B)/$(basename $(notdir $(1))))
define page_rule
$(1): $(1:$(B)/%=%.in) $(2) scripts/man
	$$(call say,MAN,$$@)
	$(Q)mkdir -p $$(@D)
	$(Q)scripts/man $(2) $$< $(VERSION) >$$@.new && mv $$@.new $$@
endef
$(foreach p,$(PAGES),$(eval $(call page_rule,$(p),$(call program_of,$(p)))))

# Suites start the built programs; the simulator and the fuzzers link what they test.
$(B)/test/integration/%: $(B)/test/integration/%.o $(call kit_of,integration) $(SUPPORT) $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,kube) $$(pkg-config --libs check)
$(B)/test/e2e/%: $(B)/test/e2e/%.o $(call kit_of,e2e) $(SUPPORT) $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,kube) $$(pkg-config --libs check)
# A node of its own; what is shared with test/e2e is there.
# NODE="plugins" chooses among them.
NODE_SUITES := $(patsubst %,$(B)/test/node/test_%,\
                 $(or $(NODE),$(patsubst test/node/test_%.c,%,$(wildcard test/node/test_*.c))))
$(NODE_SUITES): $(B)/test/node/%: $(B)/test/node/%.o $(sort $(call kit_of,node) $(call kit_of,e2e)) \
                                  $(SUPPORT) $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,kube) $$(pkg-config --libs check)
$(B)/test/node/guest: test/node/guest/guest.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc -O2 $(WARN) -D_GNU_SOURCE -static -o $@ $<
$(B)/test/node/images.tar: test/node/images scripts/oci.sh $(B)/test/node/guest
	$(call say,TAR,$@)
	$(Q)test/node/images $(B)/test/node/guest $@
$(B)/test/peers/%: $(B)/test/peers/%.o $(B)/test/peers/peers.o $(SUPPORT) $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,kube) $$(pkg-config --libs check)
$(B)/simulate: $(patsubst %.c,$(B)/%.o,$(wildcard test/simulator/*.c)) $(call archives,extender) \
               $(B)/lib/sim.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(B)/lib/sim.a $(call archives,extender) \
		$(call libs,extender) $(call libs,sim)
$(B)/walk: $(patsubst %.c,$(B)/%.o,$(wildcard test/walk/*.c)) $(call archives,core)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) $(WRAPS:%=-Wl,--wrap=%) -o $@ $^ $(call libs,core)
$(B)/bench: $(BENCH:%=$(B)/test/bench/%.o) $(B)/lib/base.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $$(pkg-config --libs libcurl jansson)
$(B)/soak: $(SOAK:%=$(B)/test/bench/%.o) $(B)/lib/base.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $$(pkg-config --libs libcurl jansson) -pthread
$(B)/bench-watchers: $(WATCHERS:%=$(B)/test/bench/%.o) $(B)/lib/base.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $$(pkg-config --libs libcurl jansson) -pthread
$(B)/bench-floor: $(B)/test/bench/floor.o
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $$(pkg-config --libs libmicrohttpd jansson)
$(B)/bench-echo: $(B)/test/bench/echo.o
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $$(pkg-config --libs libmicrohttpd jansson libcurl)
$(B)/bench-cluster: $(B)/test/bench/cluster.o $(call kit_of,e2e) $(SUPPORT) $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,kube) $$(pkg-config --libs check)
$(B)/bench-count.so: test/bench/count.c test/bench/count.h test/bench/load.h
	$(call say,LD,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Itest $(CFLAGS) -fPIC -shared -o $@ $<
# NVML without a driver: the library as it is, and one of the time before version 2.
FAKE_NVML := $(B)/fake-nvml/libnvidia-ml.so.1 $(B)/fake-nvml/old/libnvidia-ml.so.1
$(B)/fake-nvml/%: test/gpu/fake_nvml.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -fPIC -fvisibility=hidden \
		$(if $(findstring old/,$@),-DFAKE_NVML_OLD) -shared -o $@ $<
$(filter $(B)/test/gpu/%,$(UNITS)) $(B)/test/integration/test_agent \
    $(B)/test/integration/test_plugin $(B)/test/integration/test_images $(NODE_SUITES): | $(FAKE_NVML)
$(B)/test/gpu/test_smi: $(B)/test/gpu/smi.o | $(B)/test-gpu $(B)/scv-agent
$(B)/test-gpu: $(B)/test/gpu/real.o $(B)/test/gpu/smi.o $(call archives,gpu)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,gpu)
# Stands for a Service where there is no kube-proxy.
$(B)/e2e-service: $(B)/test/e2e/service/service.o $(call archives,wire)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,wire)
# What runs conformance cases; the same in test/e2e.
CASES := $(patsubst %.c,$(B)/%.o,$(wildcard test/sim/cases*.c) test/sim/same.c)
$(B)/test/sim/test_conformance: $(CASES)
$(B)/test/e2e/test_conformance: $(B)/test/e2e/test_conformance.o $(CASES) $(call kit_of,e2e) \
                                $(SUPPORT) $(B)/lib/sim.a $(call archives,kube)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(call libs,sim) $(call libs,kube) \
		$$(pkg-config --libs check)
# With clang, libFuzzer takes the place of the driver.
$(B)/test/fuzz/%: $(B)/test/fuzz/%.o \
                  $(B)/test/fuzz/$(if $(filter fuzzer,$(SANITIZE)),libfuzzer,driver).o \
                  $(B)/lib/sim.a $(B)/lib/agent.a $(B)/lib/plugin.a $(B)/lib/gpu.a \
                  $(B)/lib/replay.a $(B)/lib/setup.a $(call archives,extender)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) $(if $(filter fuzzer,$(SANITIZE)),-fsanitize=fuzzer) -o $@ \
		$(filter %.o,$^) $(filter %.a,$^) $(call libs,extender) $(call libs,sim)
$(B)/test/fuzz/fuzz_jread: $(B)/test/fuzz/jsongen.o
$(B)/test/fuzz/fuzz_verbs $(B)/test/fuzz/fuzz_http: $(B)/test/fuzz/verbs_store.o
$(B)/test/fuzz/fuzz_http: $(B)/test/fuzz/replies.o
$(B)/test/fuzz/fuzz_http: LDFLAGS += -Wl,--wrap=accept4

# Messages: x.proto becomes gen/x.pb-c.c and the header that others include.
$(B)/gen/%.pb-c.c $(B)/gen/%.pb-c.h: src/%.proto
	$(call say,PROTO,$<)
	$(Q)mkdir -p $(@D)
	$(Q)protoc-c -I$(<D) --c_out=$(@D) $<
$(B)/gen/%.o: $(B)/gen/%.c
	$(call say,CC,$<)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) $(WARN_GENERATED) -c -o $@ $<
# The page becomes part of the extender.
WEB_FILES := $(sort $(wildcard src/extender/web/*))
$(B)/gen/extender/web_files.c: scripts/embed $(WEB_FILES)
	$(call say,EMBED,$@)
	$(Q)mkdir -p $(@D)
	$(Q)scripts/embed $(WEB_FILES) >$@.new && mv $@.new $@
$(B)/lib/extender.a: $(B)/gen/extender/web_files.o
$(OBJS_kube): | $(patsubst src/%.proto,$(B)/gen/%.pb-c.h,$(wildcard src/kube/*.proto))

$(B)/%.o: %.c
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(if $(filter test/%,$<),-Itest) $(CFLAGS) -c -o $@ $<
.SECONDARY:
-include $(shell find $(B)/src $(B)/gen $(B)/test -name '*.d' 2>/dev/null)

deps:
	$(Q)scripts/install-deps.sh

# Every suite: units, golden directories, fuzz corpora, walk, simulator, real binaries.
test: deps
	$(Q)$(MAKE) --no-print-directory check
# These have one thread, except fuzz_http: nothing that TSan could see.
ONE_THREAD := $(filter-out %/fuzz_http,$(FUZZERS)) $(B)/walk $(B)/simulate
TESTS      := $(UNITS) $(SUITES) $(filter %/fuzz_http,$(FUZZERS)) \
              $(if $(filter thread,$(SANITIZE)),,$(ONE_THREAD))
programs-of-check: $(BINARIES) $(PAGES) $(TESTS)
check: programs-of-check
	$(Q)TEST_JOBS=$${TEST_JOBS:-$$(nproc)} scripts/run-tests $(B) $(TESTS)

# make e2e: the suites against the real Kubernetes. E2E="requests" runs those alone, E2E=short
# what CI runs; K8S=1.31 is another release, of those in test/e2e/programs.
e2e:
	$(Q)scripts/install-deps.sh --e2e
	$(Q)scripts/e2e-programs $(if $(K8S),--k8s $(K8S)) kube-apiserver kube-controller-manager \
		kube-scheduler kubectl kwok $(E2E_TOOLS) >/dev/null
	$(Q)$(MAKE) --no-print-directory check-e2e
check-e2e: $(BINARIES) $(B)/e2e-service $(E2E_PROGRAMS)
	$(Q)BUILD=$(B) E2E_K8S=$(K8S) TEST_TIMEOUT=1200 scripts/run-tests $(B) $(E2E_PROGRAMS)

# make e2e-node: the way of a pod to its card, on a real kubelet with containerd in namespaces
# of its own, which takes root. Where that cannot be, it says why and the test kit plays the
# kubelet; E2E_NODE=fallback wants that, and E2E_NODE=real fails instead. NODE="node chart"
# runs those suites alone.
e2e-node:
	$(Q)scripts/install-deps.sh --e2e-node
	$(Q)scripts/e2e-programs kube-apiserver kube-controller-manager kube-scheduler kubectl kwok \
		kubelet kube-proxy helm >/dev/null
	$(Q)$(MAKE) --no-print-directory check-e2e-node
check-e2e-node: images $(NODE_SUITES) $(FAKE_NVML) $(B)/test/node/images.tar
	$(Q)BUILD=$(B) E2E_NODE=$(E2E_NODE) TEST_TIMEOUT=1200 scripts/run-tests $(B) $(NODE_SUITES)

# make test-gpu: the real NVML of this machine beside nvidia-smi; fails where there is no card.
test-gpu:
	$(Q)$(MAKE) --no-print-directory $(B)/test-gpu $(B)/scv-agent
	$(Q)$(B)/test-gpu

# make peers: our gRPC and the device plugin against @grpc/grpc-js, which comes from npm.
peers:
	$(Q)scripts/install-deps.sh --peers
	$(Q)$(MAKE) --no-print-directory $(PEERS) $(B)/kube-sim $(B)/gpushare-device-plugin
	$(Q)modules=$$(scripts/npm-modules test/peers build/peers) && GPUSHARE_PEERS=$$modules \
		scripts/run-tests $(B) $(PEERS)

# make web-test: the page in Debian's Chromium, driven by playwright-core, which comes from npm.
web-test:
	$(Q)scripts/install-deps.sh --web
	$(Q)$(MAKE) --no-print-directory $(B)/kube-sim $(B)/gpushare-extender
	$(Q)modules=$$(scripts/npm-modules test/web build/web) && NODE_PATH=$$modules \
		scripts/run-tests $(B) test/web/test_page.js

# make simulate SEED=7 STEPS=100000: one run of the simulator, repeatable from its seed.
simulate: $(B)/simulate
	$(Q)$(B)/simulate $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS))

# make fuzz FUZZ_SECONDS=600 FUZZ="jread apisync": each target under libFuzzer, one by one.
fuzz:
	$(Q)scripts/install-deps.sh --fuzz
	$(Q)$(MAKE) --no-print-directory SANITIZE=fuzzer fuzzers
	$(Q)scripts/fuzz build/fuzzer build/fuzz $(FUZZ)
fuzzers: $(FUZZERS)

# make fuzz-jread RUNS=100000000 SEED=7: the JSON reader against jansson, optimised and
# without a sanitizer, half a million runs a second.
fuzz-jread: deps
	$(Q)$(MAKE) --no-print-directory $(B)/test/fuzz/fuzz_jread
	$(Q)$(B)/test/fuzz/fuzz_jread $(or $(RUNS),100000000) $(or $(SEED),1)

# make coverage: which lines of src/ the tests run.
coverage: deps
	$(Q)scripts/coverage build/coverage

# make mutants: plants each fault of test/mutants/ and sees that the walk or the simulator
# finds it.
mutants: deps
	$(Q)BUILD=$(B) scripts/mutants

# make bench: the figures of docs/performance.md; BENCH_ARGS="--nodes 5000 --rounds 3".
bench: deps
	$(Q)$(MAKE) --no-print-directory $(BINARIES) $(B)/bench $(B)/bench-floor $(B)/bench-count.so
	$(Q)$(B)/bench --build $(B) --out $(B)/bench.json $(BENCH_ARGS)

# make bench-watchers BENCH_ARGS="--nodes 5000": filter with 2,000 watches and without.
bench-watchers: deps
	$(Q)$(MAKE) --no-print-directory $(BINARIES) $(B)/bench-watchers
	$(Q)$(B)/bench-watchers --build $(B) $(BENCH_ARGS)

# make bench-cluster BENCH_NODES=5000 BENCH_PODS=5000 BENCH_ROUNDS=3: pods per second through the
# real kube-scheduler, without an extender, with the least there can be, and with ours.
bench-cluster:
	$(Q)scripts/install-deps.sh --e2e
	$(Q)scripts/e2e-programs >/dev/null
	$(Q)$(MAKE) --no-print-directory $(BINARIES) $(B)/bench-echo $(B)/bench-cluster
	$(Q)BUILD=$(B) GPUSHARE_BUILD=$(B) BENCH_NODES=$(BENCH_NODES) BENCH_PODS=$(BENCH_PODS) \
		BENCH_ROUNDS=$(BENCH_ROUNDS) $(B)/bench-cluster

# make soak SOAK_TIME=10m: everything at once; memory, descriptors and threads stay flat.
soak: deps
	$(Q)$(MAKE) --no-print-directory $(BINARIES) $(B)/soak
	$(Q)$(B)/soak --build $(B) $(if $(SOAK_TIME),--time $(SOAK_TIME))

demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)BUILD=$(B) KEEP=$(KEEP) scripts/demo

install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/gpushare
	install -m 755 $(BINARIES) scripts/kubectl_complete-inspect-gpushare $(DESTDIR)$(PREFIX)/bin
	install -m 755 scripts/install $(DESTDIR)$(PREFIX)/bin/gpushare-install
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man8
	install -m 644 $(filter %.1,$(PAGES)) $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 $(filter %.8,$(PAGES)) $(DESTDIR)$(PREFIX)/share/man/man8
	cp -r policy manifests $(DESTDIR)$(PREFIX)/share/gpushare

# make images: an OCI image of each program that runs in a cluster, as IMAGES/NAME-VERSION.tar.
IMAGES ?= $(B)/images
images: all
	$(Q)rm -rf $(IMAGES)/installed
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(IMAGES)/installed PREFIX=/usr/local >/dev/null
	$(Q)scripts/images $(IMAGES)/installed $(VERSION) $(IMAGES)
	$(Q)rm -rf $(IMAGES)/installed

# make krew KREW_URL=https://...: the kubectl plugin as an archive for krew, and its manifest.
krew: $(B)/kubectl-inspect-gpushare
	$(Q)scripts/krew $(B) $(VERSION) $(KREW_URL)

format:
	$(Q)clang-format-14 -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build

help:
	@echo 'make            build the programs into build/'
	@echo 'make demo       install what is missing, build, and show the extender at work'
	@echo '                KEEP=1 leaves it running and prints lines to try'
	@echo 'make test       install what is missing, build, and run every test'
	@echo '                SANITIZE=address|thread runs them under ASan+UBSan or TSan'
	@echo 'make e2e        the same against the real Kubernetes, built from its Go modules:'
	@echo '                E2E=short or E2E="requests ..." some suites; K8S=1.31 that release'
	@echo 'make e2e-node   the same with a real kubelet and containers, in namespaces of their own'
	@echo 'make test-gpu   the cards of this machine through the real NVML, beside nvidia-smi'
	@echo 'make peers      our gRPC against @grpc/grpc-js, which is fetched from npm'
	@echo 'make web-test   the page in headless Chromium, with playwright-core from npm'
	@echo 'make simulate   SEED=n STEPS=n: the deterministic simulator alone'
	@echo 'make deps       install what is missing'
	@echo 'make fuzz       FUZZ_SECONDS=n FUZZ="jread ...": each fuzz target under libFuzzer'
	@echo 'make fuzz-jread RUNS=n SEED=n: the JSON reader against jansson, 10^8 inputs'
	@echo 'make coverage   the lines of src/ that the tests run, and those they do not'
	@echo 'make mutants    plant faults and see that the walk or the simulator finds each'
	@echo 'make bench      the extender beside the floor, at 100 to 10,000 nodes'
	@echo 'make bench-watchers  filter beside 2,000 watches'
	@echo 'make bench-cluster  pods per second through the real kube-scheduler'
	@echo 'make soak       ten minutes of everything at once (SOAK_TIME=10m)'
	@echo 'make install    PREFIX=/usr/local DESTDIR='
	@echo 'make images     an OCI image per program of a cluster, in build/images: no daemon, no root'
	@echo 'make krew       KREW_URL=...: the kubectl plugin as an archive for krew'
	@echo 'make clean      remove build/'
	@echo 'V=1 shows the commands'
