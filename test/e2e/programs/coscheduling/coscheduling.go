// SPDX-License-Identifier: Apache-2.0

// kube-scheduler with a plugin that plays the protocol of the coscheduling plugin
// (kubernetes-sigs/scheduler-plugins): members of a PodGroup wait at Permit until as many
// of them have a node as its minMember says. When one is rejected or has waited too long,
// all that wait are rejected. The order of the queue and the check of minResources, which
// change nothing between scheduler and extender, are left out.
//
// scripts/e2e-programs builds this file with the modules of a Kubernetes release.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

const (
	name        = "Coscheduling"
	groupLabel  = "scheduling.x-k8s.io/pod-group"
	defaultWait = 60 * time.Second // PermitWaitingTimeSeconds
)

var podGroups = schema.GroupVersionResource{
	Group: "scheduling.x-k8s.io", Version: "v1alpha1", Resource: "podgroups"}

type plugin struct {
	handle fwk.Handle
	pods   corelisters.PodLister
	groups cache.GenericLister
}

var _ fwk.PreFilterPlugin = &plugin{}
var _ fwk.PostFilterPlugin = &plugin{}
var _ fwk.ReservePlugin = &plugin{}
var _ fwk.PermitPlugin = &plugin{}

func newPlugin(ctx context.Context, _ runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
	client, err := dynamic.NewForConfig(h.KubeConfig())
	if err != nil {
		return nil, err
	}
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	groups := factory.ForResource(podGroups)
	groups.Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return &plugin{handle: h, pods: h.SharedInformerFactory().Core().V1().Pods().Lister(),
		groups: groups.Lister()}, nil
}

func (p *plugin) Name() string { return name }

// The number of members that have to start together, and how long they wait; false: the
// pod is in no PodGroup, or that does not exist.
func (p *plugin) group(pod *v1.Pod) (min int, wait time.Duration, ok bool) {
	label := pod.Labels[groupLabel]
	if label == "" {
		return 0, 0, false
	}
	obj, err := p.groups.ByNamespace(pod.Namespace).Get(label)
	if err != nil {
		return 0, 0, false
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return 0, 0, false
	}
	n, _, _ := unstructured.NestedInt64(u.Object, "spec", "minMember")
	seconds, found, _ := unstructured.NestedInt64(u.Object, "spec", "scheduleTimeoutSeconds")
	if !found {
		return int(n), defaultWait, true
	}
	return int(n), time.Duration(seconds) * time.Second, true
}

func sameGroup(a, b *v1.Pod) bool {
	return a.Namespace == b.Namespace && a.Labels[groupLabel] == b.Labels[groupLabel]
}

func (p *plugin) siblings(pod *v1.Pod) ([]*v1.Pod, error) {
	return p.pods.Pods(pod.Namespace).List(
		labels.SelectorFromSet(labels.Set{groupLabel: pod.Labels[groupLabel]}))
}

// The members that are assumed or bound, without the pod of this cycle.
func (p *plugin) assigned(pod *v1.Pod) (n int) {
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return 0
	}
	for _, node := range nodes {
		for _, info := range node.GetPods() {
			if other := info.GetPod(); sameGroup(other, pod) && other.Spec.NodeName != "" {
				n++
			}
		}
	}
	return n
}

func (p *plugin) rejectWaiting(pod *v1.Pod, why string) {
	p.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
		if sameGroup(w.GetPod(), pod) {
			w.Reject(name, why)
		}
	})
}

func (p *plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	min, _, ok := p.group(pod)
	if !ok {
		return nil, nil
	}
	pods, err := p.siblings(pod)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	if len(pods) < min {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable,
			fmt.Sprintf("cannot find enough sibling pods: %d of %d", len(pods), min))
	}
	return nil, nil
}

func (p *plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// A member that finds no node rejects those that wait, unless it is one of the last tenth.
func (p *plugin) PostFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	min, _, ok := p.group(pod)
	if ok {
		missing := min - p.assigned(pod)
		if missing > 0 && missing*10 > min {
			p.rejectWaiting(pod, "optimistic rejection in PostFilter")
		}
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

func (p *plugin) Reserve(context.Context, fwk.CycleState, *v1.Pod, string) *fwk.Status {
	return nil
}

func (p *plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ string) {
	if _, _, ok := p.group(pod); ok {
		p.rejectWaiting(pod, "rejection in Unreserve")
	}
}

func (p *plugin) Permit(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) (*fwk.Status, time.Duration) {
	if pod.Labels[groupLabel] == "" {
		return nil, 0
	}
	min, wait, ok := p.group(pod)
	if !ok {
		return fwk.NewStatus(fwk.Unschedulable, "PodGroup not found"), 0
	}
	if p.assigned(pod)+1 < min {
		p.activate(state, pod)
		return fwk.NewStatus(fwk.Wait), wait
	}
	p.handle.IterateOverWaitingPods(func(w fwk.WaitingPod) {
		if sameGroup(w.GetPod(), pod) {
			w.Allow(name)
		}
	})
	return nil, 0
}

// Has the other members tried next, also if they are backing off.
func (p *plugin) activate(state fwk.CycleState, pod *v1.Pod) {
	pods, err := p.siblings(pod)
	if err != nil {
		return
	}
	stash, err := state.Read(framework.PodsToActivateKey)
	if err != nil {
		return
	}
	if s, ok := stash.(*framework.PodsToActivate); ok {
		s.Lock()
		defer s.Unlock()
		for _, other := range pods {
			if other.UID != pod.UID && other.Spec.NodeName == "" {
				s.Map[other.Namespace+"/"+other.Name] = other
			}
		}
	}
}

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(name, newPlugin))))
}
