package nodepool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	configv1 "github.com/openshift/api/config/v1"
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
	// immediately is a wait for the next pass that is as short as possible but not zero, which means none.
	immediately = time.Millisecond
	// unreachableRetry is the pause if a hosted API server does not respond. When it becomes available, an event also
	// starts a pass.
	unreachableRetry = 2 * time.Second
	// drainRetry is the pause if pods cannot be evicted yet. No event is sent when a disruption budget allows it.
	drainRetry = time.Second
)

// isUnreachable reports whether the connection to a hosted API server failed.
func isUnreachable(err error) bool {
	var transport *url.Error
	return errors.As(err, &transport)
}

// Reconcile makes one pass. A conflict is not an error: another client has written, or the cache is older than the
// controller's own writes. The pass is repeated.
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
		return reconcile.Result{RequeueAfter: readyourwrites.RetryDelay}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// observation is the input of a decision about a node pool.
type observation struct {
	now     time.Time
	pause   contract.Pause
	release *release.Release
	cluster *hyperv1.HostedCluster
	// skew is why the release is not compatible with the cluster's; empty if it is. Such a release is rolled out, unless newerThanCluster
	// reports that it is of a newer minor version.
	skew             string
	newerThanCluster bool
	target           target
	machines         []Machine
	nodeReady        map[string]bool
	problem          error
	// machineReady and ignition are the durations until a machine is provisioned and until it reaches the ignition
	// endpoint.
	machineReady, ignition time.Duration
}

func (r *Reconciler) pass(ctx context.Context, pool *hyperv1.NodePool) (time.Duration, error) {
	if !pool.DeletionTimestamp.IsZero() {
		return r.delete(ctx, pool)
	}
	var hc hyperv1.HostedCluster
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}, &hc); err != nil {
		// A pool without a cluster has nothing to do; the creation of the cluster starts a pass.
		return 0, client.IgnoreNotFound(err)
	}
	if !hc.DeletionTimestamp.IsZero() {
		return 0, nil // the deletion of the cluster deletes the pool
	}
	if err := r.ensureMetadata(ctx, pool, &hc); err != nil {
		return 0, err
	}
	o := &observation{now: time.Now(), cluster: &hc, machineReady: r.Scale.Of(schedule.MachineReady), ignition: r.Scale.Of(schedule.NodeIgnition)}
	var err error
	o.pause, o.problem = contract.ParsePause(pool.Spec.PausedUntil, o.now)
	if o.release, err = r.Releases.Lookup(pool.Spec.Release.Image); err != nil && !errors.Is(err, release.ErrUnknownImage) {
		return 0, err
	}
	if o.release != nil {
		cluster := r.clusterRelease(&hc)
		o.skew = skew(o.release, cluster)
		o.newerThanCluster = cluster != nil && o.release.Version.Ordinal() > cluster.Version.Ordinal()
	}
	if o.pause.Active || !canProvision(&hc) || o.release == nil || o.newerThanCluster || unnamedImage(pool) != nil {
		return r.reportOnly(ctx, pool, o)
	}
	return r.advance(ctx, pool, o)
}

// reportOnly reports a pool that cannot progress or is paused, with its existing machines.
func (r *Reconciler) reportOnly(ctx context.Context, pool *hyperv1.NodePool, o *observation) (time.Duration, error) {
	record, err := r.readRecord(ctx, pool)
	if err != nil {
		return 0, err
	}
	if record != nil {
		if o.machines, err = decodeMachines(record.Data); err != nil {
			return 0, err
		}
	}
	if o.target, err = r.target(pool, o); err != nil {
		return 0, err
	}
	return o.pause.Left, r.writeStatus(ctx, pool, decide(pool, o))
}

// advance makes one step with the pool's machines and reports the result.
func (r *Reconciler) advance(ctx context.Context, pool *hyperv1.NodePool, o *observation) (time.Duration, error) {
	record, err := r.readRecord(ctx, pool)
	if err != nil {
		return 0, err
	}
	if o.target, err = r.target(pool, o); err != nil {
		return 0, err
	}
	o.target.controlPlaneReady = true
	var before []Machine
	scaling := autoscaling{}
	if record != nil {
		if before, err = decodeMachines(record.Data); err != nil {
			return 0, err
		}
		if scaling, err = decodeAutoscale(record.Data); err != nil {
			return 0, err
		}
	}
	next, autoscaleWait, err := r.autoscale(ctx, pool, o, before, scaling)
	if err != nil {
		return 0, err
	}
	if o.target.remainingPods, err = r.drainNodes(ctx, pool, before); isUnreachable(err) {
		return unreachableRetry, nil
	} else if err != nil {
		return 0, err
	}
	var wait time.Duration
	o.machines, wait = step(before, o.target, r.Scale, o.now, func() string { return pool.Name + "-" + utilrand.String(5) })
	wait = schedule.ShorterWait(wait, autoscaleWait)
	changed := !slices.Equal(before, o.machines)
	if changed || !next.equal(scaling) {
		if err := r.writeRecord(ctx, pool, record, o.machines, next); err != nil {
			return 0, err
		}
	}
	if o.nodeReady, err = r.syncNodes(ctx, pool, o); isUnreachable(err) {
		r.Log.Info("waiting for the hosted API server", logkey.NodePool, pool.Namespace+"/"+pool.Name, logkey.Error, err)
		return unreachableRetry, nil
	}
	if err != nil {
		return 0, err
	}
	if err := r.writeStatus(ctx, pool, decide(pool, o)); err != nil {
		return 0, err
	}
	done := converged(o.machines, o.target) && len(o.machines) == o.target.replicas
	if changed && !done {
		return immediately, nil
	}
	if len(o.target.remainingPods) > 0 {
		wait = schedule.ShorterWait(wait, drainRetry)
	}
	base := pool.DeepCopy()
	if done {
		annotate(pool, o.cluster)
	}
	if !maps.Equal(base.Annotations, pool.Annotations) {
		if err := r.Management.Patch(ctx, pool, readyourwrites.LockedPatch(base), operatorManager); err != nil {
			return 0, fmt.Errorf("annotating the NodePool with its rolled-out configuration: %w", err)
		}
	}
	return wait, nil
}

// hostedControlPlane returns the namespace of the control plane, and reports whether it has a real API server.
func (r *Reconciler) hostedControlPlane(ctx context.Context, pool *hyperv1.NodePool) (namespace string, isReal bool, err error) {
	namespace = contract.ControlPlaneNamespace(pool.Namespace, pool.Spec.ClusterName)
	var hcp hyperv1.HostedControlPlane
	if err := r.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: pool.Spec.ClusterName}, &hcp); err != nil {
		return namespace, false, fmt.Errorf("getting the HostedControlPlane: %w", err)
	}
	fidelity, err := contract.FidelityOf(&hcp)
	return namespace, fidelity == contract.FidelityProcess && r.Nodes != nil, err
}

// drainNodes evicts the pods of nodes that are cordoned because their machines are marked for deletion, and returns the
// number of remaining pods by node.
func (r *Reconciler) drainNodes(ctx context.Context, pool *hyperv1.NodePool, machines []Machine) (map[string]int, error) {
	var names []string
	for i := range machines {
		if !machines[i].active() {
			names = append(names, machines[i].Name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	namespace, isReal, err := r.hostedControlPlane(ctx, pool)
	if err != nil || !isReal {
		return nil, err
	}
	return r.Nodes.Drain(ctx, namespace, names)
}

// syncNodes registers the machines' nodes in the hosted cluster. It returns nil if the cluster has no real API server.
func (r *Reconciler) syncNodes(ctx context.Context, pool *hyperv1.NodePool, o *observation) (map[string]bool, error) {
	namespace, isReal, err := r.hostedControlPlane(ctx, pool)
	if err != nil || !isReal {
		return nil, err
	}
	var desired []Node
	for i := range o.machines {
		m := &o.machines[i]
		if o.target.neverIgnites && m.Ready.IsZero() || o.now.Sub(m.Created) < r.Scale.Of(schedule.MachineReady) {
			continue // its kubelet does not run yet
		}
		desired = append(desired, desiredNode(pool, o, m))
	}
	return r.Nodes.Sync(ctx, namespace, pool.Name, desired)
}

func desiredNode(pool *hyperv1.NodePool, o *observation, m *Machine) Node {
	n := nodeTemplate(pool, o)
	// The kubelet of a cordoned node still reports.
	n.Name, n.Version, n.Kubelet, n.Cordoned, n.Unreachable = m.Name, m.Version, m.Kubelet, !m.active(), !m.Unhealthy.IsZero()
	n.Ready = !n.Unreachable && (!m.Ready.IsZero() || n.Cordoned)
	if m.VMSize != "" {
		n.VMSize, n.Zone = m.VMSize, m.Zone
	}
	return n
}

// nodeTemplate returns a node with the current settings of the pool.
func nodeTemplate(pool *hyperv1.NodePool, o *observation) Node {
	n := Node{Arch: pool.Spec.Arch, Labels: pool.Spec.NodeLabels}
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

// canProvision reports whether machines can join the cluster: its API server and ignition server are available.
func canProvision(hc *hyperv1.HostedCluster) bool {
	return meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.KubeAPIServerAvailable)) &&
		meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.IgnitionEndpointAvailable))
}

// clusterRelease returns the newest release that the control plane has completed, or else the one that it rolls out; nil if it is not known
// yet.
func (r *Reconciler) clusterRelease(hc *hyperv1.HostedCluster) *release.Release {
	if hc.Status.Version == nil || len(hc.Status.Version.History) == 0 {
		return nil
	}
	history := hc.Status.Version.History
	newest := max(0, slices.IndexFunc(history, func(entry configv1.UpdateHistory) bool { return entry.State == configv1.CompletedUpdate }))
	known, err := r.Releases.Lookup(history[newest].Image)
	if err != nil {
		return nil
	}
	return known
}

// unnamedImage returns the Azure marketplace image of a pool that does not name it, and nil for other pools. Without the name, no machine can be created.
func unnamedImage(pool *hyperv1.NodePool) *hyperv1.AzureMarketplaceImage {
	azure := pool.Spec.Platform.Azure
	if azure == nil || azure.Image.Type != hyperv1.AzureMarketplace || azure.Image.AzureMarketplace == nil || azure.Image.AzureMarketplace.Publisher != "" {
		return nil
	}
	return azure.Image.AzureMarketplace
}

// marketplaceImage returns the Azure marketplace image of a release, which the operator adds to the spec. Only releases since 4.20 name one.
func marketplaceImage(r *release.Release) (publisher, offer, sku, version string) {
	return "azureopenshift", "aro4", fmt.Sprintf("%d%d-v2", r.Version.Major, r.Version.Minor), "9.6.20251015"
}

// ensureMetadata adds the fields that the operator adds to a NodePool: finalizer, owner, and, with the first machine template, the marketplace image.
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
	if image := unnamedImage(pool); image != nil && hc.Status.KubeConfig != nil {
		if known, err := r.Releases.Lookup(pool.Spec.Release.Image); err == nil && known.Version.Minor >= 20 {
			image.Publisher, image.Offer, image.SKU, image.Version = marketplaceImage(known)
		}
	}
	if equality.Semantic.DeepEqual(base, pool) {
		return nil
	}
	if err := r.Management.Patch(ctx, pool, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("writing the operator's fields of the NodePool: %w", err)
	}
	return nil
}

// annotate annotates a pool with its rolled-out configuration.
func annotate(pool *hyperv1.NodePool, hc *hyperv1.HostedCluster) {
	if pool.Annotations == nil {
		pool.Annotations = map[string]string{}
	}
	pool.Annotations[contract.CurrentConfigAnnotation] = reportedHash(pool, hc)
	pool.Annotations[contract.CurrentConfigVersion] = configHash(pool, hc)
	pool.Annotations[contract.CurrentTemplateAnnotation] = pool.Name + "-" + templateHash(pool)
}

func (r *Reconciler) writeStatus(ctx context.Context, pool *hyperv1.NodePool, status hyperv1.NodePoolStatus) error {
	if equality.Semantic.DeepEqual(pool.Status, status) {
		return nil
	}
	base := pool.DeepCopy()
	pool.Status = status
	if err := r.Management.Status().Patch(ctx, pool, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("writing the status of the NodePool: %w", err)
	}
	return nil
}

// delete removes the pool's nodes and machines, and then its finalizer. If the whole cluster is deleted, the nodes are
// removed with the hosted API server and need no drain.
func (r *Reconciler) delete(ctx context.Context, pool *hyperv1.NodePool) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(pool, contract.Finalizer) {
		return 0, nil
	}
	var hc hyperv1.HostedCluster
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Spec.ClusterName}, &hc)
	if client.IgnoreNotFound(err) != nil {
		return 0, err
	}
	record, recordErr := r.readRecord(ctx, pool)
	if recordErr != nil {
		return 0, recordErr
	}
	if err == nil && hc.DeletionTimestamp.IsZero() && record != nil && canProvision(&hc) {
		done, wait, err := r.scaleToZero(ctx, pool, &hc, record)
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
	if err := r.Management.Patch(ctx, pool, readyourwrites.LockedPatch(base), operatorManager); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("removing the NodePool's finalizer: %w", err)
	}
	return 0, nil
}

// scaleToZero removes all machines of the pool, and reports whether none is left.
func (r *Reconciler) scaleToZero(ctx context.Context, pool *hyperv1.NodePool, hc *hyperv1.HostedCluster, record *corev1.ConfigMap) (done bool, wait time.Duration, err error) {
	o := &observation{now: time.Now(), cluster: hc}
	before, err := decodeMachines(record.Data)
	if err != nil {
		return false, 0, err
	}
	if o.target, err = r.target(pool, o); err != nil {
		return false, 0, err
	}
	o.target.replicas, o.target.controlPlaneReady, o.target.onDelete, o.target.inPlace = 0, true, false, false
	o.target.maxSurge, o.target.autoRepair = 0, false
	if o.target.remainingPods, err = r.drainNodes(ctx, pool, before); isUnreachable(err) {
		return false, unreachableRetry, nil
	} else if err != nil {
		return false, 0, err
	}
	o.machines, wait = step(before, o.target, r.Scale, o.now, nil)
	changed := !slices.Equal(before, o.machines)
	if changed {
		if err := r.writeRecord(ctx, pool, record, o.machines, autoscaling{}); err != nil {
			return false, 0, err
		}
	}
	if _, err := r.syncNodes(ctx, pool, o); isUnreachable(err) {
		return false, unreachableRetry, nil
	} else if err != nil {
		return false, 0, err
	}
	if changed && len(o.machines) > 0 {
		return false, immediately, nil
	}
	if len(o.target.remainingPods) > 0 {
		wait = schedule.ShorterWait(wait, drainRetry)
	}
	return len(o.machines) == 0, wait, nil
}
