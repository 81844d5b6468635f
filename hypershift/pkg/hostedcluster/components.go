package hostedcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// etcdComponent is the only component that is a StatefulSet.
const etcdComponent = "etcd"

// component is a part of a hosted control plane that reports through a ControlPlaneComponent.
type component struct {
	name string
	wave schedule.Wave
	// inStatusFidelity components are also reported in status fidelity, which has only as many as show every wave.
	inStatusFidelity bool
	// onlyAutoscaling components exist only if a node pool autoscales.
	onlyAutoscaling bool
	// onlyOAuth components exist only without external authentication.
	onlyOAuth bool
}

// components lists the parts of a control plane in alphabetical order. The PKI operator, etcd and the feature gates
// have no dependency; the rest depends on the API server, and most operators on the OpenShift API server.
var components = []component{
	{name: "azure-cloud-controller-manager", wave: schedule.WaveControllers},
	{name: "capi-provider", wave: schedule.WaveFoundation},
	{name: "cloud-credential-operator", wave: schedule.WaveOperators},
	{name: "cluster-api", wave: schedule.WaveFoundation},
	{name: "cluster-autoscaler", wave: schedule.WaveControllers, inStatusFidelity: true, onlyAutoscaling: true},
	{name: "cluster-image-registry-operator", wave: schedule.WaveOperators},
	{name: "cluster-network-operator", wave: schedule.WaveOperators},
	{name: "cluster-node-tuning-operator", wave: schedule.WaveOperators},
	{name: "cluster-policy-controller", wave: schedule.WaveOperators},
	{name: "cluster-storage-operator", wave: schedule.WaveOperators},
	{name: "cluster-version-operator", wave: schedule.WaveOperators, inStatusFidelity: true},
	{name: "control-plane-operator", wave: schedule.WaveFoundation},
	{name: "control-plane-pki-operator", wave: schedule.WaveFoundation},
	{name: "csi-snapshot-controller-operator", wave: schedule.WaveOperators},
	{name: "dns-operator", wave: schedule.WaveOperators},
	{name: etcdComponent, wave: schedule.WaveFoundation, inStatusFidelity: true},
	{name: "featuregate-generator", wave: schedule.WaveFoundation},
	{name: "hosted-cluster-config-operator", wave: schedule.WaveControllers},
	{name: "ignition-server", wave: schedule.WaveControllers},
	{name: "ignition-server-proxy", wave: schedule.WaveControllers},
	{name: "ingress-operator", wave: schedule.WaveOperators},
	{name: "konnectivity-agent", wave: schedule.WaveControllers},
	{name: "kube-apiserver", wave: schedule.WaveAPIServer, inStatusFidelity: true},
	{name: "kube-controller-manager", wave: schedule.WaveControllers},
	{name: "kube-scheduler", wave: schedule.WaveControllers},
	{name: "machine-approver", wave: schedule.WaveControllers},
	{name: "oauth-openshift", wave: schedule.WaveOperators, onlyOAuth: true},
	{name: "olm-operator", wave: schedule.WaveOperators},
	{name: "openshift-apiserver", wave: schedule.WaveControllers},
	{name: "openshift-controller-manager", wave: schedule.WaveOperators},
	{name: "openshift-oauth-apiserver", wave: schedule.WaveControllers, onlyOAuth: true},
	{name: "openshift-route-controller-manager", wave: schedule.WaveOperators},
	{name: "packageserver", wave: schedule.WaveOperators},
	{name: "router", wave: schedule.WaveFoundation},
}

// rollout is the progress of the components.
type rollout struct {
	// wave is the last wave whose components run version. Components of later waves run previous, or do not run if it
	// is empty. In an upgrade, the first nextWaveDone components of the next wave also run version.
	wave              schedule.Wave
	nextWaveDone      int
	version, previous string
	autoscaling       bool
	externalOIDC      bool
	fidelity          contract.Fidelity
}

func (r rollout) desiredComponents() []component {
	var desired []component
	for _, c := range components {
		if c.onlyAutoscaling && !r.autoscaling || c.onlyOAuth && r.externalOIDC || r.fidelity == contract.FidelityStatus && !c.inStatusFidelity {
			continue
		}
		desired = append(desired, c)
	}
	return desired
}

// inWave returns the components of a wave in the order in which an upgrade rolls them out: etcd, the slowest, last.
func (r rollout) inWave(wave schedule.Wave) []component {
	list := slices.DeleteFunc(r.desiredComponents(), func(c component) bool { return c.wave != wave })
	slices.SortStableFunc(list, func(a, b component) int {
		switch {
		case a.name == etcdComponent:
			return 1
		case b.name == etcdComponent:
			return -1
		}
		return 0
	})
	return list
}

// waveSize returns the number of components of a wave.
func (r rollout) waveSize(wave schedule.Wave) int { return len(r.inWave(wave)) }

// runsVersion reports whether a component runs the version.
func (r rollout) runsVersion(c component) bool {
	if c.wave == r.wave+1 && r.nextWaveDone > 0 {
		return slices.IndexFunc(r.inWave(c.wave), func(other component) bool { return other.name == c.name }) < r.nextWaveDone
	}
	return c.wave <= r.wave
}

// runsClusterVersionOperator reports whether the cluster-version operator runs the version.
func (r rollout) runsClusterVersionOperator() bool {
	i := slices.IndexFunc(components, func(c component) bool { return c.name == "cluster-version-operator" })
	return r.runsVersion(components[i])
}

// unavailable returns the names of the components that are not available, in alphabetical order.
func (r rollout) unavailable() []string {
	var names []string
	for _, c := range r.desiredComponents() {
		if c.wave > r.wave && r.previous == "" {
			names = append(names, c.name)
		}
	}
	return names
}

// complete reports whether every component runs the version.
func (r rollout) complete() bool { return r.wave >= schedule.WaveOperators }

// status returns the status of a component.
func (r rollout) status(c component, now metav1.Time, before hyperv1.ControlPlaneComponentStatus) hyperv1.ControlPlaneComponentStatus {
	after := *before.DeepCopy()
	set := func(kind hyperv1.ConditionType, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&after.Conditions, metav1.Condition{
			Type: string(kind), Status: status, Reason: reason, Message: message, LastTransitionTime: now,
		})
	}
	kind := "Deployment"
	if c.name == etcdComponent {
		kind = "StatefulSet"
	}
	after.Resources = []hyperv1.ComponentResource{{Group: "apps", Kind: kind, Name: c.name}}
	switch {
	case r.runsVersion(c):
		after.Version = r.version
		set(hyperv1.ControlPlaneComponentAvailable, metav1.ConditionTrue, hyperv1.AsExpectedReason, c.name+" is available")
		set(hyperv1.ControlPlaneComponentRolloutComplete, metav1.ConditionTrue, hyperv1.AsExpectedReason, "")
	case r.previous != "" && c.wave == r.wave+1:
		after.Version = r.previous
		set(hyperv1.ControlPlaneComponentAvailable, metav1.ConditionTrue, hyperv1.AsExpectedReason, c.name+" is available")
		set(hyperv1.ControlPlaneComponentRolloutComplete, metav1.ConditionFalse, "WaitingForRolloutComplete",
			fmt.Sprintf("Waiting for %s %s rollout to finish: 0 out of 3 new replicas have been updated", strings.ToLower(kind), c.name))
	case r.previous != "":
		after.Version = r.previous
		set(hyperv1.ControlPlaneComponentAvailable, metav1.ConditionTrue, hyperv1.AsExpectedReason, c.name+" is available")
		set(hyperv1.ControlPlaneComponentRolloutComplete, metav1.ConditionFalse, hyperv1.WaitingForDependenciesReason, "Waiting for Dependencies: "+dependency(c))
	default:
		set(hyperv1.ControlPlaneComponentAvailable, metav1.ConditionFalse, hyperv1.NotFoundReason, fmt.Sprintf("%ss.apps %q not found", strings.ToLower(kind), c.name))
		set(hyperv1.ControlPlaneComponentRolloutComplete, metav1.ConditionFalse, hyperv1.WaitingForDependenciesReason, "Waiting for Dependencies: "+dependency(c))
	}
	return after
}

func dependency(c component) string {
	switch c.wave {
	case schedule.WaveAPIServer:
		return "etcd"
	case schedule.WaveControllers:
		return "kube-apiserver"
	case schedule.WaveOperators:
		return "openshift-apiserver"
	}
	return "infrastructure"
}

// componentWriters bounds the number of concurrent writes for one control plane.
const componentWriters = 4

// ensureComponents writes the status of the components, and deletes components that the rollout no longer includes.
func (r *Reconciler) ensureComponents(ctx context.Context, hcp *hyperv1.HostedControlPlane, rollout rollout, now metav1.Time) error {
	var list hyperv1.ControlPlaneComponentList
	if err := r.Management.List(ctx, &list, client.InNamespace(hcp.Namespace)); err != nil {
		return fmt.Errorf("listing components: %w", err)
	}
	existing := map[string]*hyperv1.ControlPlaneComponent{}
	for i := range list.Items {
		existing[list.Items[i].Name] = &list.Items[i]
	}
	var writes []func() error
	desired := rollout.desiredComponents()
	for _, c := range desired {
		object, found := existing[c.name]
		if found {
			if err := r.Management.CheckCurrent(ctx, object); err != nil {
				return fmt.Errorf("reading component %s: %w", c.name, err)
			}
		}
		if found && equality.Semantic.DeepEqual(rollout.status(c, now, object.Status), object.Status) {
			continue
		}
		if !found && c.wave > rollout.wave+1 {
			continue // writes for components that cannot start yet would only slow down the start of the API server
		}
		writes = append(writes, func() error {
			if !found {
				object = &hyperv1.ControlPlaneComponent{ObjectMeta: metav1.ObjectMeta{
					Namespace: hcp.Namespace, Name: c.name, OwnerReferences: []metav1.OwnerReference{ownerOf(hcp, "HostedControlPlane")},
				}}
				err := r.Management.Create(ctx, object, controlPlaneManager)
				if apierrors.IsAlreadyExists(err) {
					err = r.Live.Get(ctx, client.ObjectKeyFromObject(object), object)
				}
				if err != nil {
					return fmt.Errorf("creating component %s: %w", c.name, err)
				}
			}
			base := object.DeepCopy()
			object.Status = rollout.status(c, now, object.Status)
			if err := r.Management.Status().Patch(ctx, object, readyourwrites.LockedPatch(base), controlPlaneManager); err != nil {
				return fmt.Errorf("writing the status of component %s: %w", c.name, err)
			}
			return nil
		})
	}
	for name, object := range existing {
		if !slices.ContainsFunc(desired, func(c component) bool { return c.name == name }) {
			writes = append(writes, func() error { return client.IgnoreNotFound(r.Management.Delete(ctx, object)) })
		}
	}
	return runConcurrently(componentWriters, writes)
}

// runConcurrently runs the functions, at most limit at the same time, waits for all, and returns the first error.
func runConcurrently(limit int, functions []func() error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, limit)
	for _, function := range functions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := function(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = err
				}
			}
		})
	}
	wg.Wait()
	return first
}

func ownerOf(object client.Object, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: hyperv1.GroupVersion.String(), Kind: kind, Name: object.GetName(), UID: object.GetUID()}
}

// Field managers of the writes, as in the real operators. Consumers see by them who owns a field.
const (
	operatorManager     = client.FieldOwner(contract.OperatorManager)
	controlPlaneManager = client.FieldOwner(contract.ControlPlaneManager)
)
