# SPDX-License-Identifier: Apache-2.0
# The test programs. The Makefile includes this file and runs them.

CHECK_LIBS = $$(pkg-config --libs check)
# The files of a folder that its test programs share.
shared     = $(call objects,$(filter-out test/$(1)/test_%,$(wildcard test/$(1)/*.c)))
programs   = $(patsubst test/%.c,$(B)/test/%,$(wildcard test/$(1)/test_*.c))

# test/lib: what suites share. The linker takes what a test uses, so that a test of base/ needs
# nothing of the folders above.
LIB := $(B)/test/lib.a
$(LIB): $(call objects,$(wildcard test/lib/*.c))
	$(archive)

# -- Unit tests: test/FOLDER/ links FOLDER and the folders that FOLDER uses --

UNITS := $(foreach f,$(FOLDERS),$(call programs,$(f)))
define unit_rules
$(B)/test/$(1)/%: $(B)/test/$(1)/%.o $(LIB) $(call archives,$(1))
	$$(link)
$(B)/test/$(1)/%: private LIBS = $$(call libs,$(1)) $$(CHECK_LIBS)
endef
$(foreach f,$(FOLDERS),$(eval $(call unit_rules,$(f))))

# test_allocations counts the calls of COUNTED; test/walk/heap.c replaces those of WRAPS.
COUNTED := malloc calloc realloc reallocarray aligned_alloc strdup
WRAPS   := $(COUNTED) free
$(B)/test/kube/test_wipe: LDFLAGS += -Wl,--wrap=malloc,--wrap=free,--wrap=realloc,--wrap=reallocarray
$(B)/test/extender/test_allocations: LDFLAGS += $(COUNTED:%=-Wl,--wrap=%)
$(B)/test/extender/test_prioritize: LDFLAGS += -Wl,--wrap=core_driver_read_end
$(B)/test/node/test_metrics $(B)/test/node/test_program $(B)/test/node/test_pod_watch \
    $(B)/test/fuzz/fuzz_pod_watch $(B)/test/fuzz/fuzz_agent: LDFLAGS += -Wl,--wrap=clock_mono_ms


# The conformance cases: on the API of kube-sim, and in test/e2e on the real API server.
CASES := $(call shared,kube-sim)
$(B)/test/kube-sim/test_conformance: $(CASES)

# NVML without a driver: the current interface, and the one before version 2.
FAKE_NVML := $(B)/fake-nvml/libnvidia-ml.so.1 $(B)/fake-nvml/old/libnvidia-ml.so.1
$(B)/fake-nvml/%: test/gpu/fake_nvml.c test/gpu/fake_cuda.h test/gpu/fake_limits.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Itest $(CFLAGS) -fPIC -fvisibility=hidden \
		$(if $(findstring old/,$@),-DFAKE_NVML_OLD) -shared -o $@ $<
$(call programs,gpu) $(B)/test/node/test_limit_readback $(B)/test/node/test_metrics $(B)/test/node/test_program $(B)/test/e2e/test_prometheus: | $(FAKE_NVML)

# -- libgpushare-limit.so: guests that it is preloaded into, and a libcuda.so.1 without a driver --

# Built as any CUDA program is: by a compiler that knows nothing of the sanitizers. The folder musl
# is for programs of another C library.
MUSL_CC      := $(if $(ARCH),,$(shell command -v musl-gcc))
FAKE_CUDA    := $(B)/fake-cuda/libcuda.so.1 $(if $(MUSL_CC),$(B)/fake-cuda/musl/libcuda.so.1)
LIMIT_GUESTS := $(foreach d,guest $(if $(MUSL_CC),guest/musl),$(addprefix $(B)/test/limit/$d/,guest guest-link plugin.so))
guest_cc      = $(if $(findstring musl/,$@),$(MUSL_CC),$(LIMIT_CC)) -std=gnu11 -D_GNU_SOURCE -Itest -O2 -g \
                -Wall -Wextra -Werror -Wno-parentheses
FAKE_PARTS   := test/gpu/fake_cuda.c test/gpu/fake_cuda_memory.c
$(FAKE_CUDA): $(FAKE_PARTS) test/gpu/fake_cuda.h test/gpu/fake_cuda_objects.h test/gpu/fake_limits.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(guest_cc) -fPIC -fvisibility=hidden -shared -Wl,-soname,libcuda.so.1 -o $@ $(FAKE_PARTS)
LIMIT_NVML   := $(B)/fake-nvml/guest/libnvidia-ml.so.1
$(B)/test/gpu/test_card_check: | $(CARD_CHECK) $(LIMIT) $(FAKE_CUDA) $(LIMIT_NVML)
$(LIMIT_NVML): test/gpu/fake_nvml.c test/gpu/fake_cuda.h test/gpu/fake_limits.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(guest_cc) -fPIC -fvisibility=hidden -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $<
GUEST_PARTS  := $(wildcard test/limit/guest/*.c)
$(B)/test/limit/guest/%: $(GUEST_PARTS) test/limit/guest/guest.h test/gpu/fake_cuda.h | $(FAKE_CUDA)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(guest_cc) $(if $(findstring link,$@),-DGUEST_LINK) $(if $(findstring .so,$@),-fPIC -shared) -o $@$(if $(RUN),$(if $(findstring .so,$@),,.$(ARCH))) $(GUEST_PARTS) \
		$(if $(findstring link,$@),-L$(B)/fake-cuda/$(if $(findstring musl/,$@),musl) -l:libcuda.so.1) -pthread -ldl
	$(if $(RUN),$(if $(findstring .so,$@),,$(Q)printf '#!/bin/sh\nexec $(RUN) "$$0.$(ARCH)" "$$@"\n' >$@ && chmod 755 $@))

# A program with the driver inside, which no preloaded library reaches.
STATIC_GUEST := $(if $(RUN),,$(B)/test/limit/guest/static)
$(STATIC_GUEST): $(GUEST_PARTS) $(FAKE_PARTS) $(wildcard test/gpu/fake_*.h) test/limit/guest/guest.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(guest_cc) -DGUEST_LINK -DGUEST_STATIC -static -o $@ $(GUEST_PARTS) $(FAKE_PARTS) -pthread
$(B)/test/limit/test_driver_limit: | $(STATIC_GUEST)

# The parts that need no preloading are linked into the test, and seen by the sanitizers.
LIMIT_TESTS := $(if $(LIMIT),$(call programs,limit))
LIMIT_PARTS := $(call objects,$(patsubst %,src/limit/%.c,slots table sys))
$(B)/test/limit/%: $(B)/test/limit/%.o $(call shared,limit) $(LIMIT_PARTS) $(LIB) $(B)/lib/gpu.a $(call archives,kube) \
                   | $(LIMIT) $(LIMIT_GUESTS) $(LIMIT_NVML) $(CARD_CHECK)
	$(link)
$(B)/test/limit/%: private LIBS = $(call libs,kube) $(CHECK_LIBS)

# -- Suites that start the built programs: they link test/lib and, of the product, kube --

# The suites with a real kubelet.
NODE_DIR := test/e2e-node

define suite_rules
$(B)/test/$(1)/%: $(B)/test/$(1)/%.o $(call shared,$(1)) $(LIB) $(call archives,kube)
	$$(link)
$(B)/test/$(1)/%: private LIBS = $$(call libs,kube) $$(CHECK_LIBS)
endef
$(foreach f,integration hostile e2e $(notdir $(NODE_DIR)) peers release,$(eval $(call suite_rules,$(f))))

SUITES := $(call programs,integration) $(call programs,hostile)
PEERS  := $(call programs,peers)
# Of make test-release.
RELEASE_SUITES := $(call programs,release)
$(B)/test/integration/test_agent $(B)/test/integration/test_plugin $(B)/test/integration/test_external_use \
    $(B)/test/integration/test_driver $(B)/test/integration/test_limit_readback $(B)/test/integration/test_images: | $(FAKE_NVML)

# E2E=short: the suites that CI runs.
E2E_SHORT  := requests agent plugin conformance choice tls apiservice chart install tenant
E2E_SUITES := $(or $(filter-out short,$(E2E)),$(if $(filter short,$(E2E)),$(E2E_SHORT)),\
                $(patsubst test/e2e/test_%.c,%,$(wildcard test/e2e/test_*.c)))
# kube-sim models later releases. No plugin for gangs, and another framework for plugins.
ifeq ($(K8S),1.31)
E2E_SUITES := $(filter-out conformance gang kubeadm permit,$(E2E_SUITES))
endif
E2E_PROGRAMS := $(E2E_SUITES:%=$(B)/test/e2e/test_%)
# What the suites run besides the control plane.
E2E_TOOLS := $(if $(filter chart helm docs scheduler,$(E2E_SUITES)),helm cert-manager-crds) \
             $(if $(filter permit,$(E2E_SUITES)),coscheduling) $(filter kubeadm $(if $(PROMETHEUS),,prometheus),$(E2E_SUITES)) \
             $(if $(filter neighbors,$(E2E_SUITES)),descheduler training-operator.v1 training-operator-crds)
$(B)/test/e2e/test_conformance: $(B)/test/e2e/test_conformance.o $(CASES) $(LIB) \
                                $(B)/lib/kube-sim.a $(call archives,kube)
	$(link)
$(B)/test/e2e/test_conformance: private LIBS = $(call libs,kube-sim) $(call libs,kube) $(CHECK_LIBS)
# Forwards the address of a Service, where there is no kube-proxy.
$(B)/e2e-service: $(B)/test/e2e/service/service.o $(B)/test/e2e/service/relay.o $(LIB) $(call archives,wire)
	$(link)
$(B)/e2e-service: private LIBS = $(call libs,wire)

# The cluster of `scripts/cluster up --managed`, and the runtime of its node.
$(B)/e2e-managed: $(B)/$(NODE_DIR)/managed/managed.o $(B)/test/e2e/service/relay.o \
                  $(call shared,$(notdir $(NODE_DIR))) $(LIB) \
                  $(call archives,kube)
	$(link)
$(B)/e2e-managed: private LIBS = $(call libs,kube) $(CHECK_LIBS)
$(B)/e2e-nvidia-runtime: $(B)/$(NODE_DIR)/nvidia/nvidia.o $(call archives,base)
	$(link)
$(B)/e2e-nvidia-runtime: private LIBS = $(call libs,kube)
MANAGED_PARTS = $(B)/e2e-managed $(B)/e2e-nvidia-runtime $(FAKE_NVML) $(NODE_IMAGES)

# NODE="plugins" selects among them, NODE=short what CI runs. managed takes four minutes; CI runs one
# of its tests.
NODE_SHORT  := driver_limit hami
NODE_SUITES := $(if $(NODE),$(patsubst %,$(B)/$(NODE_DIR)/test_%,$(patsubst short,$(NODE_SHORT),$(NODE))),$(filter-out %/test_managed %/test_kubeadm,\
                 $(call programs,$(notdir $(NODE_DIR)))))
NODE_IMAGES := $(B)/$(NODE_DIR)/images.tar
# Kubernetes 1.35 and older run with Debian's containerd.
NODE_TOOLS := $(if $(filter 1.31 1.35,$(K8S)),,containerd nvidia-ctk)
$(NODE_SUITES): | $(FAKE_NVML) $(LIMIT)
$(B)/$(NODE_DIR)/guest: $(NODE_DIR)/guest/guest.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc -O2 $(WARN) -D_GNU_SOURCE -static -o $@ $<
$(B)/$(NODE_DIR)/preloaded.so: $(NODE_DIR)/guest/preloaded.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D)
	$(Q)gcc -O2 $(WARN) -D_GNU_SOURCE -fPIC -shared -o $@ $<
$(NODE_IMAGES): $(NODE_DIR)/images scripts/oci.sh $(B)/$(NODE_DIR)/guest $(B)/$(NODE_DIR)/preloaded.so $(LIMIT_GUESTS) $(STATIC_GUEST)
	$(call say,TAR,$@)
	$(Q)$(NODE_DIR)/images $(B)/$(NODE_DIR)/guest $(B) $@

# -- Simulator, walk, fuzz targets: they link what they test --

$(B)/simulate: $(call objects,$(wildcard test/simulator/*.c) test/mutants.c) $(B)/lib/kube-sim.a $(call archives,extender)
	$(link)
$(B)/simulate: private LIBS = $(call libs,extender) $(call libs,kube-sim)
$(B)/walk: $(call objects,$(wildcard test/walk/*.c) test/mutants.c) $(call archives,core)
	$(link)
$(B)/walk: private LIBS = $(call libs,core)
$(B)/walk: private LDFLAGS += $(WRAPS:%=-Wl,--wrap=%)

FUZZERS     := $(patsubst test/%.c,$(B)/test/%,$(wildcard test/fuzz/fuzz_*.c))
FUZZ_FRAME  := $(patsubst %,$(B)/test/fuzz/%.o,fuzz $(if $(filter fuzzer,$(SANITIZE)),,driver))
$(B)/test/fuzz/%: $(B)/test/fuzz/%.o $(FUZZ_FRAME) $(LIB) \
                  $(foreach f,kube-sim node gpu replay setup,$(B)/lib/$(f).a) \
                  $(call archives,extender)
	$(link)
$(B)/test/fuzz/%: private LIBS = $(if $(filter fuzzer,$(SANITIZE)),-fsanitize=fuzzer) \
                                 $(call libs,extender) $(call libs,kube-sim) $(CHECK_LIBS)
$(B)/test/fuzz/fuzz_verbs $(B)/test/fuzz/fuzz_http: $(B)/test/fuzz/verbs_driver.o
$(B)/test/fuzz/fuzz_http: LDFLAGS += -Wl,--wrap=accept4

# What `make check` runs. A sanitizer finds nothing in a suite that reads files or runs scripts,
# and TSan nothing in a program of one thread.
ONE_THREAD := $(filter-out %/fuzz_http,$(FUZZERS)) $(B)/walk $(B)/simulate \
              $(foreach f,domain placement core replay,$(call programs,$(f)))
OUTSIDE    := $(patsubst %,$(B)/test/base/test_%,includes mutants shell) \
              $(patsubst %,$(B)/test/integration/test_%,docs images krew man manifests \
                options release samples symbols)
# SHORT=1, as in CI: not those that wait most of their time, each of which another sanitizer or the
# release build runs.
SHORT_address := $(patsubst %,$(B)/test/%,replay/test_replay $(patsubst %,integration/test_%,certs slow_lease \
                   stale limit_readback))
SHORT_thread  := $(patsubst %,$(B)/test/integration/test_%,install inspect_cli kubectl faults overuse)
# The longest first, so that no core idles at the end.
TESTS      := $(B)/walk $(B)/simulate $(UNITS) $(LIMIT_TESTS) $(SUITES) $(FUZZERS)
TESTS      := $(filter-out $(if $(SANITIZE),$(OUTSIDE) $(if $(SHORT),$(SHORT_$(SANITIZE)))) $(if $(filter thread,$(SANITIZE)),$(ONE_THREAD)),$(TESTS))

# What make check T= runs.
T_PROGRAMS    := $(foreach t,$(T),$(B)/test/$(firstword $(subst :, ,$t)))
# What make unit runs: each program takes less than two seconds on a quiet machine.
UNIT_SLOW     := $(patsubst %,$(B)/test/%,base/test_shell gpu/test_card_check kube-sim/% wire/% \
                   node/test_model $(patsubst %,extender/test_%,events gpuapi) \
                   $(patsubst %,view/test_%,watch watch_cache))
UNIT_PROGRAMS := $(filter-out $(UNIT_SLOW),$(UNITS))

# What make test-arm64 runs: suites that start no program, and depend on no port and no time. The
# memory that qemu-user reports in /proc is 0, which test_prom does not accept.
ARCH_TESTS := $(filter-out $(OUTSIDE) %/test_clock %/test_prom %/test_card_check,\
                $(foreach f,base domain placement core gpu kube replay,$(call programs,$(f)))) \
              $(patsubst %,$(B)/test/limit/test_%,preload reserve symbols)

# -- Benchmarks --

$(B)/bench: $(call objects,$(wildcard test/bench/*.c)) $(LIB) $(B)/lib/replay.a \
            $(call archives,kube) $(call archives,placement)
	$(link)
$(B)/bench: private LIBS = $(call libs,replay) $(call libs,kube) $(CHECK_LIBS) $$(pkg-config --libs libmicrohttpd gnutls)
