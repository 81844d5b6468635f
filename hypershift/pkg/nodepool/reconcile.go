package nodepool

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/node"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/release"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const operatorManager = client.FieldOwner(contract.OperatorManager)

const (
	// again is the wait that means "at once".
	again = time.Millisecond
	// unreachablePause is for a hosted API server that does not answer; its coming back is an event as well.
	unreachablePause = 2 * time.Second
	// drainPause is for pods that may not be evicted yet: nothing tells when a disruption budget allows it.
	drainPause = time.Second
)

// unreachable reports whether a hosted API server could not be talked to at all.
func unreachable(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport)
}

// Reconcile makes one pass. A conflict is no error: somebody else wrote, or the cache is behind our own writes.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pool hyperv1.NodePool
	err := r.Management.Get(ctx, request.NamespacedName, &pool)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	}
	var wait time.Duration
	if err == nil {
		wait, err = r.pass(ctx, pool.DeepCopy())
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: ownwrites.CatchUp}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// observed is what a pass found out about a node pool.
type observed struct {
	now       time.Time
	pause     contract.Pause
	release   *release.Release
	cluster   *hyperv1.HostedCluster
	skew      string // why the release does not fit the cluster's; empty if it does
	target    target
	machines  []Machine
	nodeReady map[string]bool
	problem   error
	// machineReady and ignition are how long a machine takes to be provisioned, and to reach the ignition endpoint.
	machineReady, ignition time.Duration
}

// oldest is the age of the oldest machine.
func (o *observed) oldest() time.Duration {
	var age time.Duration
	for i := range o.machines {
		age = max(age, o.now.Sub(o.machines[i].Created))
	}
	return age
}

func (r *Reconciler) pass(ctx context.Context, pool *hyperv1.NodePool) (time.Duration, error) {
	if !pool.DeletionTimestamp.IsZero() {
		return r.delete(ctx, pool)
	}
	var hc hyperv1.HostedCluster
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}, &hc); err != nil {
		// Without its cluster a pool is nothing; the cluster's creation brings the next pass.
		return 0, client.IgnoreNotFound(err)
	}
	if !hc.DeletionTimestamp.IsZero() {
		return 0, nil // the cluster's deletion deletes the pool
	}
	if err := r.ensureMetadata(ctx, pool, &hc); err != nil {
		return 0, err
	}
	o := &observed{now: time.Now(), cluster: &hc, machineReady: r.Scale.Of(schedule.MachineReady), ignition: r.Scale.Of(schedule.NodeIgnition)}
	var err error
	if o.pause, o.problem = contract.ParsePause(pool.Spec.PausedUntil, o.now); o.pause.Active {
		return o.pause.Left, r.writeStatus(ctx, pool, decide(pool, o))
	}
	if o.release, err = r.Releases.Lookup(pool.Spec.Release.Image); err != nil && !errors.Is(err, release.ErrUnknownImage) {
		return 0, err
	}
	if o.release != nil {
		o.skew = skew(o.release, r.clusterRelease(&hc))
	}
	if !canProvision(&hc) || o.release == nil || o.skew != "" {
		return r.observeOnly(ctx, pool, o)
	}
	return r.advance(ctx, pool, o)
}

// observeOnly reports a pool that cannot move on, with the machines it has.
func (r *Reconciler) observeOnly(ctx context.Context, pool *hyperv1.NodePool, o *observed) (time.Duration, error) {
	record, err := r.record(ctx, pool)
	if err != nil {
		return 0, err
	}
	if record != nil {
		if o.machines, err = decodeMachines(record.Data); err != nil {
			return 0, err
		}
	}
	o.target = r.target(pool, o)
	return 0, r.writeStatus(ctx, pool, decide(pool, o))
}

// advance takes one step with the pool's machines and reports it.
func (r *Reconciler) advance(ctx context.Context, pool *hyperv1.NodePool, o *observed) (time.Duration, error) {
	o.target = r.target(pool, o)
	o.target.controlPlaneReady = true
	record, err := r.record(ctx, pool)
	if err != nil {
		return 0, err
	}
	var before []Machine
	scaling := autoscale{}
	if record != nil {
		if before, err = decodeMachines(record.Data); err != nil {
			return 0, err
		}
		if scaling, err = decodeAutoscale(record.Data); err != nil {
			return 0, err
		}
	}
	next, later, err := r.autoscale(ctx, pool, o, before, scaling)
	if err != nil {
		return 0, err
	}
	if o.target.undrained, err = r.drainNodes(ctx, pool, before); unreachable(err) {
		return unreachablePause, nil
	} else if err != nil {
		return 0, err
	}
	var wait time.Duration
	o.machines, wait = step(before, o.target, r.Scale, o.now, func() string { return pool.Name + "-" + utilrand.String(5) })
	wait = schedule.Sooner(wait, later)
	changed := !slices.Equal(before, o.machines)
	if changed || !next.equal(scaling) {
		if err := r.writeRecord(ctx, pool, record, o.machines, next); err != nil {
			return 0, err
		}
	}
	if o.nodeReady, err = r.syncNodes(ctx, pool, o); unreachable(err) {
		r.Log.Info("waiting for the hosted API server", "nodePool", pool.Namespace+"/"+pool.Name, "error", err)
		return unreachablePause, nil
	}
	if err != nil {
		return 0, err
	}
	if err := r.writeStatus(ctx, pool, decide(pool, o)); err != nil {
		return 0, err
	}
	done := settled(o.machines, o.target) && len(o.machines) == o.target.replicas
	if changed && !done {
		return again, nil
	}
	if len(o.target.undrained) > 0 {
		wait = schedule.Sooner(wait, drainPause)
	}
	if done && pool.Annotations[contract.CurrentConfigAnnotation] != o.target.config {
		base := pool.DeepCopy()
		annotate(pool, o.target.config)
		if err := r.Management.Patch(ctx, pool, ownwrites.Locked(base), operatorManager); err != nil {
			return 0, fmt.Errorf("recording the configuration that was rolled out: %w", err)
		}
	}
	return wait, nil
}

// hosted reports whether there is a real hosted cluster, and its control plane's namespace.
func (r *Reconciler) hosted(ctx context.Context, pool *hyperv1.NodePool) (namespace string, real bool, err error) {
	namespace = contract.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName)
	var hcp hyperv1.HostedControlPlane
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool.Spec.ClusterName}, &hcp); err != nil {
		return namespace, false, fmt.Errorf("getting the HostedControlPlane: %w", err)
	}
	return namespace, hcp.Annotations[contract.FidelityAnnotation] == "process" && r.Nodes != nil, nil
}

// drainNodes moves pods away from nodes that were told to go and are cordoned by now, and counts those that stay.
func (r *Reconciler) drainNodes(ctx context.Context, pool *hyperv1.NodePool, machines []Machine) (map[string]int, error) {
	var names []string
	for i := range machines {
		if !machines[i].alive() {
			names = append(names, machines[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	namespace, real, err := r.hosted(ctx, pool)
	if err != nil || !real {
		return nil, err
	}
	return r.Nodes.Drain(ctx, namespace, names)
}

// syncNodes has the machines' nodes registered in the hosted cluster; nil without a real one.
func (r *Reconciler) syncNodes(ctx context.Context, pool *hyperv1.NodePool, o *observed) (map[string]bool, error) {
	namespace, real, err := r.hosted(ctx, pool)
	if err != nil || !real {
		return nil, err
	}
	var wanted []node.Node
	for i := range o.machines {
		m := &o.machines[i]
		if o.target.neverIgnites && m.Ready.IsZero() || o.now.Sub(m.Created) < r.Scale.Of(schedule.MachineReady) {
			continue // no kubelet runs yet that could register it
		}
		wanted = append(wanted, describe(pool, o, m))
	}
	return r.Nodes.Sync(ctx, namespace, pool.Name, wanted)
}

func describe(pool *hyperv1.NodePool, o *observed, m *Machine) node.Node {
	n := template(pool, o)
	// A node that is drained still runs.
	n.Name, n.Version, n.Kubelet, n.Leaving, n.Lost = m.Name, m.Version, m.Kubelet, !m.alive(), !m.Unhealthy.IsZero()
	n.Ready = !n.Lost && (!m.Ready.IsZero() || n.Leaving)
	if m.VMSize != "" {
		n.VMSize, n.Zone = m.VMSize, m.Zone
	}
	return n
}

// template is a node as the pool would make it now.
func template(pool *hyperv1.NodePool, o *observed) node.Node {
	n := node.Node{Arch: pool.Spec.Arch, Labels: pool.Spec.NodeLabels}
	if n.Arch == "" {
		n.Arch = "amd64"
	}
	for _, taint := range pool.Spec.Taints {
		n.Taints = append(n.Taints, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
	}
	if azure := pool.Spec.Platform.Azure; azure != nil {
		n.VMSize, n.Zone = azure.VMSize, azure.AvailabilityZone
	}
	if azure := o.cluster.Spec.Platform.Azure; azure != nil {
		n.Location, n.SubscriptionID, n.ResourceGroup = azure.Location, azure.SubscriptionID, azure.ResourceGroupName
	}
	return n
}

// canProvision reports whether machines can join the cluster: its API server and ignition server answer.
func canProvision(hc *hyperv1.HostedCluster) bool {
	return meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.KubeAPIServerAvailable)) &&
		meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.IgnitionEndpointAvailable))
}

// installed are the images of the cluster's version history, newest first.
func installed(hc *hyperv1.HostedCluster) []string {
	if hc.Status.Version == nil {
		return nil
	}
	var images []string
	for _, entry := range hc.Status.Version.History {
		images = append(images, entry.Image)
	}
	return images
}

// clusterRelease is the release the control plane runs or rolls out; nil if that is not known yet.
func (r *Reconciler) clusterRelease(hc *hyperv1.HostedCluster) *release.Release {
	images := installed(hc)
	if len(images) == 0 {
		return nil
	}
	known, err := r.Releases.Lookup(images[0])
	if err != nil {
		return nil
	}
	return known
}

// marketplaceImage is what the operator fills in for the Azure marketplace image of a release.
func marketplaceImage(r *release.Release) (publisher, offer, sku, version string) {
	return "azureopenshift", "aro4", fmt.Sprintf("%d%d-v2", r.Version.Major, r.Version.Minor), "9.6.20251015"
}

// ensureMetadata adds what the operator adds to a NodePool: finalizer, owner, marketplace image.
func (r *Reconciler) ensureMetadata(ctx context.Context, pool *hyperv1.NodePool, hc *hyperv1.HostedCluster) error {
	base := pool.DeepCopy()
	controllerutil.AddFinalizer(pool, contract.Finalizer)
	owner := metav1.OwnerReference{APIVersion: hyperv1.GroupVersion.String(), Kind: "HostedCluster", Name: hc.Name, UID: hc.UID}
	owned := false
	for _, reference := range pool.OwnerReferences {
		owned = owned || reference.UID == hc.UID
	}
	if !owned {
		pool.OwnerReferences = append(pool.OwnerReferences, owner)
	}
	if azure := pool.Spec.Platform.Azure; azure != nil && azure.Image.Type == hyperv1.AzureMarketplace && azure.Image.AzureMarketplace != nil && azure.Image.AzureMarketplace.Publisher == "" {
		if known, err := r.Releases.Lookup(pool.Spec.Release.Image); err == nil {
			image := azure.Image.AzureMarketplace
			image.Publisher, image.Offer, image.SKU, image.Version = marketplaceImage(known)
		}
	}
	if pool.Annotations[contract.CurrentConfigAnnotation] == "" {
		annotate(pool, configHash(pool, hc))
	}
	if equality.Semantic.DeepEqual(base, pool) {
		return nil
	}
	if err := r.Management.Patch(ctx, pool, ownwrites.Locked(base), operatorManager); err != nil {
		return fmt.Errorf("writing the operator's fields of the NodePool: %w", err)
	}
	return nil
}

func annotate(pool *hyperv1.NodePool, config string) {
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	pool.Annotations[contract.CurrentConfigAnnotation] = config
	pool.Annotations[contract.CurrentConfigVersion] = config
	pool.Annotations[contract.CurrentTemplateAnnotation] = pool.Name + "-" + templateHash(pool)
}

func (r *Reconciler) writeStatus(ctx context.Context, pool *hyperv1.NodePool, status hyperv1.NodePoolStatus) error {
	if equality.Semantic.DeepEqual(pool.Status, status) {
		return nil
	}
	base := pool.DeepCopy()
	pool.Status = status
	if err := r.Management.Status().Patch(ctx, pool, ownwrites.Locked(base), operatorManager); err != nil {
		return fmt.Errorf("writing the status of the NodePool: %w", err)
	}
	return nil
}

// delete removes the pool's nodes and machines, then its finalizer. When the whole cluster goes, the hosted API server
// takes its nodes with it, and nobody is there to drain for.
func (r *Reconciler) delete(ctx context.Context, pool *hyperv1.NodePool) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(pool, contract.Finalizer) {
		return 0, nil
	}
	var hc hyperv1.HostedCluster
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}, &hc)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	record, recordErr := r.record(ctx, pool)
	if recordErr != nil {
		return 0, recordErr
	}
	if err == nil && hc.DeletionTimestamp.IsZero() && record != nil && canProvision(&hc) {
		done, wait, err := r.drain(ctx, pool, &hc, record)
		if err != nil || !done {
			return wait, err
		}
	}
	if record != nil {
		if err := r.Management.Delete(ctx, record); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("deleting the record of machines: %w", err)
		}
	}
	base := pool.DeepCopy()
	controllerutil.RemoveFinalizer(pool, contract.Finalizer)
	if err := r.Management.Patch(ctx, pool, ownwrites.Locked(base), operatorManager); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("removing the NodePool's finalizer: %w", err)
	}
	return 0, nil
}

// drain scales the pool down to nothing.
func (r *Reconciler) drain(ctx context.Context, pool *hyperv1.NodePool, hc *hyperv1.HostedCluster, record *corev1.ConfigMap) (done bool, wait time.Duration, err error) {
	o := &observed{now: time.Now(), cluster: hc}
	before, err := decodeMachines(record.Data)
	if err != nil {
		return false, 0, err
	}
	o.target = r.target(pool, o)
	o.target.replicas, o.target.controlPlaneReady, o.target.onDelete, o.target.inPlace = 0, true, false, false
	o.target.maxSurge, o.target.autoRepair = 0, false
	if o.target.undrained, err = r.drainNodes(ctx, pool, before); unreachable(err) {
		return false, unreachablePause, nil
	} else if err != nil {
		return false, 0, err
	}
	o.machines, wait = step(before, o.target, r.Scale, o.now, nil)
	changed := !slices.Equal(before, o.machines)
	if changed {
		if err := r.writeRecord(ctx, pool, record, o.machines, autoscale{}); err != nil {
			return false, 0, err
		}
	}
	if _, err := r.syncNodes(ctx, pool, o); unreachable(err) {
		return false, unreachablePause, nil
	} else if err != nil {
		return false, 0, err
	}
	if changed && len(o.machines) > 0 {
		return false, again, nil
	}
	if len(o.target.undrained) > 0 {
		wait = schedule.Sooner(wait, drainPause)
	}
	return len(o.machines) == 0, wait, nil
}
