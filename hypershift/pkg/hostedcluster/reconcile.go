package hostedcluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/schedule"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
	"github.com/hcpmesh/hcpmesh/internal/release"
	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func objectMeta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// logConstructor returns loggers for requests. The default of controller-runtime logs namespace and name of every
// request twice.
func logConstructor(mgr ctrl.Manager) func(*reconcile.Request) logr.Logger {
	return func(request *reconcile.Request) logr.Logger {
		if request == nil {
			return mgr.GetLogger()
		}
		return mgr.GetLogger().WithValues("hostedCluster", request.String())
	}
}

// Reconcile makes one pass. A conflict is not an error: another client has written, or the cache is older than the
// controller's own writes. The pass is repeated.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var hc hyperv1.HostedCluster
	err := r.Management.Get(ctx, request.NamespacedName, &hc)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.releaseVanished(ctx, request)
	}
	var wait time.Duration
	if err == nil {
		r.owners.Store(contract.ControlPlaneNamespace(hc.Namespace, hc.Name), request)
		wait, err = r.pass(ctx, hc.DeepCopy())
	}
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: readyourwrites.RetryDelay}, nil
	case err != nil && !hc.DeletionTimestamp.IsZero() && apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: readyourwrites.RetryDelay}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// pass makes all changes that are possible now. It returns the time until the schedule allows more; zero if only an
// event does.
func (r *Reconciler) pass(ctx context.Context, hc *hyperv1.HostedCluster) (time.Duration, error) {
	if !hc.DeletionTimestamp.IsZero() {
		return r.delete(ctx, hc)
	}
	o := &observation{Now: time.Now()}
	var err error
	if o.Faults, err = contract.ParseFaults(hc.Annotations); err != nil {
		o.Problem = err
	}
	if o.Pause, err = contract.ParsePause(hc.Spec.PausedUntil, o.Now); err != nil {
		o.Problem = err
	}
	if _, err = gracePeriod(hc); err != nil {
		o.Problem = err
	}
	if err := r.ensureMetadata(ctx, hc); err != nil {
		return 0, err
	}
	key := contract.ControlPlaneNamespace(hc.Namespace, hc.Name)
	hcp, err := r.controlPlane(ctx, hc, key)
	if err != nil {
		return 0, err
	}
	if hcp != nil && !hcp.DeletionTimestamp.IsZero() {
		return r.finishRemoved(ctx, hc, hcp)
	}
	if o.Encryption, err = r.readEncryption(ctx, key); err != nil {
		return 0, err
	}
	o.Desired, err = r.Releases.Lookup(hc.Spec.Release.Image)
	if err != nil && !errors.Is(err, release.ErrUnknownImage) {
		return 0, err
	}
	if o.Pause.Active {
		return o.Pause.Left, r.reportPaused(ctx, hc, hcp, o)
	}
	if o.Problem == nil {
		o.Problem = r.ensureReferences(ctx, hc)
	}
	if apierrors.IsConflict(o.Problem) {
		return 0, o.Problem
	}
	if key := hc.Spec.ServiceAccountSigningKey; o.Problem == nil && key != nil && key.Name != "" {
		if o.SigningKey, o.Invalid, err = r.givenSigningKey(ctx, hc); err != nil {
			return 0, err
		}
		if hcp != nil {
			o.Problem = o.Invalid // its API server cannot be configured without the key
		}
	}
	if o.Problem == nil && o.Invalid == nil {
		if _, o.Invalid, err = r.authenticationOf(ctx, hc, hc.Spec.IssuerURL); err != nil {
			return 0, err
		}
	}

	if len(hc.Status.Conditions) == 0 {
		// The first status is written before anything is created, because consumers display it.
		if err := r.writeStatus(ctx, hc, o, decide(hc, nil, o)); err != nil {
			return 0, err
		}
	}
	phase, wait := r.Scale.PhaseAfter(r.age(hc, hcp, o.Now))
	if hcp == nil {
		if o.Problem == nil {
			o.Problem = r.namespaceProblem(ctx, key)
		}
		if o.Problem != nil || o.Invalid != nil || o.Desired == nil || phase < schedule.Infrastructure {
			return wait, r.writeStatus(ctx, hc, o, decide(hc, nil, o))
		}
		if hcp, err = r.createControlPlane(ctx, hc, key); err != nil {
			return 0, err
		}
	}
	if o.Problem != nil {
		return 0, r.writeStatus(ctx, hc, o, decideProblem(hc, o))
	}
	if o.Faults.Has(contract.FaultInfrastructureStuck) && !meta.IsStatusConditionTrue(hcp.Status.Conditions, string(hyperv1.InfrastructureReady)) {
		phase, wait = min(phase, schedule.Infrastructure), 0
	}
	o.Phase = phase
	more, err := r.advance(ctx, hc, hcp, o)
	if err != nil {
		return 0, err
	}
	return schedule.ShorterWait(wait, more), nil
}

// reportPaused reports a paused cluster. Its control plane gets the pause and nothing else of the spec, and its status continues to follow the
// API server once it has been available.
func (r *Reconciler) reportPaused(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) error {
	if hcp == nil {
		return r.writeStatus(ctx, hc, o, decide(hc, nil, o))
	}
	if base := hcp.DeepCopy(); !equality.Semantic.DeepEqual(hcp.Spec.PausedUntil, hc.Spec.PausedUntil) {
		hcp.Spec.PausedUntil = hc.Spec.PausedUntil
		if err := r.Management.Patch(ctx, hcp, readyourwrites.LockedPatch(base), operatorManager); err != nil {
			return fmt.Errorf("pausing the HostedControlPlane: %w", err)
		}
	}
	if err := r.ensureHasBeenAvailable(ctx, hc); err != nil {
		return err
	}
	if hc.Annotations[contract.HasBeenAvailableAnnotation] == "" {
		return r.writeStatus(ctx, hc, o, decidePaused(hc, o))
	}
	if err := r.observeNodePools(ctx, hc, o); err != nil {
		return err
	}
	var err error
	if o.Installing, err = r.Releases.Lookup(hcp.Spec.ReleaseImage); err != nil {
		return fmt.Errorf("looking up the running release: %w", err)
	}
	o.Updates = r.Releases.Updates(o.Installing.Version, hc.Spec.Channel)
	applied := withSpecOf(hc, hcp)
	if o.Authentication, o.ConfigurationProblem, err = r.authenticationOf(ctx, applied, hcp.Spec.IssuerURL); err != nil {
		return err
	}
	fidelity, err := contract.FidelityOf(hcp)
	if err != nil {
		return err
	}
	o.Phase, o.Endpoint = schedule.Done, hcp.Status.ControlPlaneEndpoint
	if fidelity == contract.FidelityProcess {
		if r.ControlPlanes == nil {
			return errNoControlPlanes
		}
		r.observeAPIServer(hcp, o)
	}
	o.Kubeconfig, o.KubeadminPassword, o.CustomKubeconfig = true, hasPassword(applied, hcp), hc.Spec.KubeAPIServerDNSName != ""
	if err := r.observeOIDCClients(ctx, applied, hcp, o); err != nil {
		return err
	}
	r.decideRollout(applied, hcp, fidelity, o)
	if status := decideControlPlane(applied, hcp, o); !equality.Semantic.DeepEqual(hcp.Status, status) {
		hcp.Status = status
		if err := r.updateStatus(ctx, hcp, "HostedControlPlane", o.Encryption, controlPlaneManager); err != nil {
			return fmt.Errorf("writing the status of the HostedControlPlane: %w", err)
		}
	}
	return r.writeStatus(ctx, hc, o, decide(hc, hcp, o))
}

// advance brings the control plane as far as its phase allows and writes the status.
func (r *Reconciler) advance(ctx context.Context, hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, o *observation) (time.Duration, error) {
	if err := r.observeNodePools(ctx, hc, o); err != nil {
		return 0, err
	}
	if err := r.decideRelease(hcp, hc, o); err != nil {
		return 0, err
	}
	applied := hc
	if o.Invalid != nil {
		applied = withSpecOf(hc, hcp)
	} else if err := r.updateControlPlane(ctx, hc, hcp, o); err != nil {
		return 0, err
	}
	var err error
	if o.Authentication, o.ConfigurationProblem, err = r.authenticationOf(ctx, applied, hcp.Spec.IssuerURL); err != nil {
		return 0, err
	}
	fidelity, err := contract.FidelityOf(hcp)
	if err != nil {
		return 0, err
	}
	o.Endpoint = hyperv1.APIEndpoint{Host: hc.Spec.KubeAPIServerDNSName, Port: routePort}
	if o.Endpoint.Host == "" {
		o.Endpoint.Host = "127.0.0.1"
	}
	if o.Phase > schedule.Infrastructure {
		m, err := r.ensurePKI(ctx, applied, hcp, o.SigningKey, o.Now)
		if err != nil {
			return 0, err
		}
		if fidelity == contract.FidelityProcess {
			if err := r.ensureAPIServer(applied, hcp, m, o); err != nil {
				return 0, err
			}
			if err := r.ensureService(ctx, hcp, o.Endpoint); err != nil {
				return 0, err
			}
		}
		if o.Phase > schedule.Kubeconfig {
			if err := r.ensureKubeconfigs(ctx, hc, hcp, m, o.Endpoint); err != nil {
				return 0, err
			}
			o.Kubeconfig, o.KubeadminPassword, o.CustomKubeconfig = true, hasPassword(applied, hcp), hc.Spec.KubeAPIServerDNSName != ""
		}
	}

	if err := r.observeOIDCClients(ctx, applied, hcp, o); err != nil {
		return 0, err
	}
	wait := r.decideRollout(applied, hcp, fidelity, o)
	status := decideControlPlane(applied, hcp, o)
	rotating, err := r.rotateEncryption(ctx, applied, hcp, status.Conditions, o)
	if err != nil {
		return 0, err
	}
	unreported := o.Encryption != nil && !o.Encryption.Reported
	if o.Phase > schedule.Kubeconfig {
		if err := r.ensureComponents(ctx, hcp, o.Rollout, metav1.NewTime(o.Now)); err != nil {
			return 0, err
		}
	}
	if unreported {
		status = decideControlPlane(applied, hcp, o)
	}
	if unreported || !equality.Semantic.DeepEqual(hcp.Status, status) {
		hcp.Status = status
		if err := r.updateStatus(ctx, hcp, "HostedControlPlane", o.Encryption, controlPlaneManager); err != nil {
			return 0, fmt.Errorf("writing the status of the HostedControlPlane: %w", err)
		}
	}
	if err := r.writeStatus(ctx, hc, o, decide(hc, hcp, o)); err != nil {
		return 0, err
	}
	if unreported {
		o.Encryption.Reported = true
		if err := r.writeEncryption(ctx, hcp, o.Encryption); err != nil {
			return 0, err
		}
	}
	return schedule.ShorterWait(wait, rotating), r.ensureHasBeenAvailable(ctx, hc)
}

// withSpecOf returns a HostedCluster with the part of the spec that its control plane has.
func withSpecOf(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane) *hyperv1.HostedCluster {
	applied := hc.DeepCopy()
	applied.Spec.Release.Image = hcp.Spec.ReleaseImage
	applied.Spec.Configuration, applied.Spec.SecretEncryption = hcp.Spec.Configuration, hcp.Spec.SecretEncryption
	return applied
}

// hasPassword reports whether a control plane has a password of kubeadmin. One with external authentication gets none, and keeps the one that
// it has.
func hasPassword(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane) bool {
	return oidcSpec(hc.Spec.Configuration) == nil || hcp.Status.KubeadminPassword != nil
}

// ensureMetadata adds the fields that the operator adds to a HostedCluster: finalizer, identifiers, size label.
func (r *Reconciler) ensureMetadata(ctx context.Context, hc *hyperv1.HostedCluster) error {
	base := hc.DeepCopy()
	controllerutil.AddFinalizer(hc, contract.Finalizer)
	if hc.Spec.ClusterID == "" {
		hc.Spec.ClusterID = uuid.NewString()
	}
	if hc.Spec.InfraID == "" {
		hc.Spec.InfraID = infraID(hc.Name)
	}
	if hc.Labels[hyperv1.HostedClusterSizeLabel] == "" {
		if hc.Labels == nil {
			hc.Labels = map[string]string{}
		}
		hc.Labels[hyperv1.HostedClusterSizeLabel] = "small"
	}
	return r.patchIfChanged(ctx, hc, base)
}

// infraID returns an identifier that begins with the name and has a random suffix, which distinguishes incarnations of
// a name.
func infraID(name string) string { return fmt.Sprintf("%.26s-%s", name, utilrand.String(5)) }

// ensureHasBeenAvailable records that a cluster was available. The pass that has reported it may end, or a pause may begin, before it is recorded.
func (r *Reconciler) ensureHasBeenAvailable(ctx context.Context, hc *hyperv1.HostedCluster) error {
	if !meta.IsStatusConditionTrue(hc.Status.Conditions, string(hyperv1.HostedClusterAvailable)) || hc.Annotations[contract.HasBeenAvailableAnnotation] != "" {
		return nil
	}
	base := hc.DeepCopy()
	if hc.Annotations == nil {
		hc.Annotations = map[string]string{}
	}
	hc.Annotations[contract.HasBeenAvailableAnnotation] = "true"
	return r.patchIfChanged(ctx, hc, base)
}

// patchIfChanged writes metadata and spec. The server's response replaces hc, so hc must not have a new status that was
// not written yet.
func (r *Reconciler) patchIfChanged(ctx context.Context, hc, base *hyperv1.HostedCluster) error {
	if equality.Semantic.DeepEqual(base, hc) {
		return nil
	}
	if err := r.Management.Patch(ctx, hc, readyourwrites.LockedPatch(base), operatorManager); err != nil {
		return fmt.Errorf("writing the operator's fields of the HostedCluster: %w", err)
	}
	return nil
}

func (r *Reconciler) writeStatus(ctx context.Context, hc *hyperv1.HostedCluster, o *observation, status hyperv1.HostedClusterStatus) error {
	unreported := o.Encryption != nil && !o.Encryption.Reported
	if !unreported && equality.Semantic.DeepEqual(hc.Status, status) {
		return nil
	}
	before := availability(hc.Status.Conditions)
	hc.Status = status
	if err := r.updateStatus(ctx, hc, "HostedCluster", o.Encryption, operatorManager); err != nil {
		return fmt.Errorf("writing the status of the HostedCluster: %w", err)
	}
	if after := availability(hc.Status.Conditions); after != before {
		r.Log.Info("hosted cluster availability changed", logkey.HostedCluster, hc.Namespace+"/"+hc.Name, logkey.State, after,
			logkey.ResourceID, hc.Annotations[contract.AzureResourceIDAnnotation], logkey.Duration, time.Since(hc.CreationTimestamp.Time).Round(time.Millisecond).String())
	}
	return nil
}

// updateStatus replaces the status of an object with an update, which fails with a conflict if the object was written
// since it was read. A merge patch is not possible: the version history has fields that must be present and null. The
// status has no other writer, and the server takes only the status from the update.
func (r *Reconciler) updateStatus(ctx context.Context, object client.Object, kind string, e *encryption, manager client.FieldOwner) error {
	if e == nil {
		return r.Management.Status().Update(ctx, object, manager)
	}
	full, err := unstructuredWithEncryption(object, kind, e)
	if err != nil {
		return err
	}
	if err := r.Management.Status().Update(ctx, full, manager); err != nil {
		return err
	}
	object.SetResourceVersion(full.GetResourceVersion())
	return nil
}

func availability(list []metav1.Condition) string {
	if c := meta.FindStatusCondition(list, string(hyperv1.HostedClusterAvailable)); c != nil {
		return string(c.Status) + "/" + c.Reason
	}
	return ""
}

// ensureReferences checks that the objects to which the spec refers exist, and annotates them as referenced.
func (r *Reconciler) ensureReferences(ctx context.Context, hc *hyperv1.HostedCluster) error {
	references := map[string]string{hc.Spec.PullSecret.Name: "pull secret"}
	if key := hc.Spec.ServiceAccountSigningKey; key != nil {
		references[key.Name] = "service account signing key"
	}
	if spec := oidcSpec(hc.Spec.Configuration); spec != nil {
		if _, err := r.issuerAuthorities(ctx, hc.Namespace, spec); err != nil {
			return err
		}
		for _, provider := range spec.OIDCProviders {
			for _, c := range provider.OIDCClients {
				if c.ClientSecret.Name != "" {
					references[c.ClientSecret.Name] = "OIDC client secret"
				}
			}
		}
	}
	if hc.Spec.SSHKey.Name != "" {
		references[hc.Spec.SSHKey.Name] = "SSH key"
	}
	for _, name := range slices.Sorted(maps.Keys(references)) {
		var secret corev1.Secret
		if err := r.Management.Get(ctx, client.ObjectKey{Namespace: hc.Namespace, Name: name}, &secret); err != nil {
			return fmt.Errorf("failed to get %s %s: %w", references[name], name, err)
		}
		if name == hc.Spec.PullSecret.Name && len(secret.Data[corev1.DockerConfigJsonKey]) == 0 {
			return fmt.Errorf("expected %s key in pull secret %s", corev1.DockerConfigJsonKey, name)
		}
		annotation := contract.ReferencedResourcePrefix + hc.Name
		if _, marked := secret.Annotations[annotation]; marked {
			continue
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotation, hc.Name)
		if err := r.Management.Patch(ctx, &secret, client.RawPatch(types.MergePatchType, []byte(patch)), operatorManager); err != nil {
			return fmt.Errorf("annotating %s %s as referenced: %w", references[name], name, err)
		}
	}
	return nil
}

// observeNodePools counts the ready nodes of the cluster's node pools.
func (r *Reconciler) observeNodePools(ctx context.Context, hc *hyperv1.HostedCluster, o *observation) error {
	var pools hyperv1.NodePoolList
	if err := r.Management.List(ctx, &pools, client.InNamespace(hc.Namespace)); err != nil {
		return fmt.Errorf("listing node pools: %w", err)
	}
	for _, pool := range pools.Items {
		if pool.Spec.ClusterName != hc.Name {
			continue
		}
		o.Rollout.autoscaling = o.Rollout.autoscaling || pool.Spec.AutoScaling != nil
		o.ReadyNodes += int(pool.Status.Replicas)
	}
	return nil
}

// decideRelease chooses the release of the control plane: the one in the spec, unless it is unknown, older or too far
// ahead, or the spec cannot be applied.
func (r *Reconciler) decideRelease(hcp *hyperv1.HostedControlPlane, hc *hyperv1.HostedCluster, o *observation) error {
	current, err := r.Releases.Lookup(hcp.Spec.ReleaseImage)
	if err != nil {
		return fmt.Errorf("looking up the running release: %w", err)
	}
	o.Installing = current
	switch {
	case o.Desired == nil, o.Problem != nil, o.Invalid != nil:
	case o.Desired.LessThan(current):
		o.UpgradeRefusal = fmt.Sprintf("cannot downgrade from %s to %s", current.Version, o.Desired.Version)
	case o.Desired.Version.Ordinal() > current.Version.Ordinal()+1 && hc.Annotations[hyperv1.ForceUpgradeToAnnotation] != hc.Spec.Release.Image:
		o.UpgradeRefusal = fmt.Sprintf("cannot upgrade from %s to %s: minor versions must not be skipped", current.Version, o.Desired.Version)
	case !o.Desired.Version.SameMinor(current.Version) && meta.IsStatusConditionFalse(hcp.Status.Conditions, string(hyperv1.ClusterVersionUpgradeable)) &&
		hc.Annotations[hyperv1.ForceUpgradeToAnnotation] != hc.Spec.Release.Image:
		upgradeable := meta.FindStatusCondition(hcp.Status.Conditions, string(hyperv1.ClusterVersionUpgradeable))
		o.UpgradeRefusal = fmt.Sprintf("cannot upgrade from %s to %s: the cluster version is not upgradeable: %s", current.Version, o.Desired.Version, upgradeable.Message)
	default:
		o.Installing = o.Desired
	}
	o.Updates = r.Releases.Updates(o.Installing.Version, hc.Spec.Channel)
	return nil
}

// decideRollout computes the progress of the components. The start of a creation is the one that age uses; the start of an upgrade is in the newest entry of the version history.
func (r *Reconciler) decideRollout(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, fidelity contract.Fidelity, o *observation) time.Duration {
	o.Rollout.version, o.Rollout.fidelity, o.Rollout.externalOIDC = o.Installing.Version.String(), fidelity, oidcSpec(hc.Spec.Configuration) != nil
	wave, wait := r.Scale.Creation(r.age(hc, hcp, o.Now))
	if versions := hcp.Status.VersionStatus; versions != nil && len(versions.History) > 0 {
		switch head := versions.History[0]; {
		case head.Version != o.Installing.Version.String(): // this pass starts the upgrade
			wave, o.Rollout.nextWaveDone, wait = r.Scale.Upgrade(0, o.Rollout.waveSize)
			o.Rollout.previous = head.Version
		case len(versions.History) > 1:
			wave, o.Rollout.nextWaveDone, wait = r.Scale.Upgrade(o.Now.Sub(head.StartedTime.Time), o.Rollout.waveSize)
			o.Rollout.previous = versions.History[1].Version
		}
	}
	ceiling := schedule.WaveOperators
	switch {
	case o.Phase <= schedule.EtcdQuorum:
		ceiling = -1
	case o.Phase <= schedule.APIServerStarting:
		ceiling = schedule.WaveFoundation
	case fidelity == contract.FidelityProcess && !meta.IsStatusConditionTrue(hcp.Status.Conditions, string(hyperv1.KubeAPIServerAvailable)):
		// The API server is reported as soon as it is available; the components that depend on it follow in the next
		// pass.
		ceiling, wait = schedule.WaveAPIServer, schedule.ShorterWait(wait, time.Millisecond)
	case o.Faults.Has(contract.FaultComponentsStuck):
		ceiling = schedule.WaveControllers
	}
	if o.Rollout.previous != "" && o.Phase < schedule.Done {
		ceiling = schedule.WaveOperators // an upgrade does not wait while the API server restarts
		if o.Faults.Has(contract.FaultComponentsStuck) {
			ceiling = schedule.WaveControllers
		}
	}
	if wave >= ceiling {
		wave, o.Rollout.nextWaveDone = ceiling, 0
	}
	o.Rollout.wave = wave
	return wait
}

// controlPlane returns the HostedControlPlane; nil if it does not exist.
func (r *Reconciler) controlPlane(ctx context.Context, hc *hyperv1.HostedCluster, namespace string) (*hyperv1.HostedControlPlane, error) {
	var hcp hyperv1.HostedControlPlane
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hc.Name}, &hcp)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting the HostedControlPlane: %w", err)
	}
	return hcp.DeepCopy(), nil
}

// errNoControlPlanes is returned for clusters of process fidelity in a runtime that cannot run API servers.
var errNoControlPlanes = errors.New("the cluster has process fidelity, and this runtime was started without --kube-apiserver")

// ensureAPIServer starts or updates the hosted API server, and limits the phase to the state of the server.
func (r *Reconciler) ensureAPIServer(hc *hyperv1.HostedCluster, hcp *hyperv1.HostedControlPlane, m *pkiMaterial, o *observation) error {
	if r.ControlPlanes == nil {
		return errNoControlPlanes
	}
	if o.Problem = m.problem; o.Problem != nil {
		r.observeAPIServer(hcp, o)
		return nil
	}
	spec := hostedapi.Spec{
		Name: hcp.Namespace, Port: hcp.Status.ControlPlaneEndpoint.Port, Issuer: hcp.Spec.IssuerURL,
		Serving: m.serving, Named: m.named, ServingCA: m.servingCA, Admin: m.admin, ClientCA: m.clientCA,
		ServiceAccountKey: m.signing.private, ServiceAccountPublicKey: m.signing.public, Authentication: o.Authentication,
		EncryptionKeys: m.encryptionKeys, KubeletClient: m.kubeletClient, KubeletAuthority: r.KubeletAuthority,
		MaxRequests: 150, MaxMutatingRequests: 50, // HyperShift's values for a cluster of size small
		RestartDate: hcp.Annotations[hyperv1.RestartDateAnnotation],
	}
	if managed := hcp.Spec.Etcd.Managed; managed != nil && managed.Storage.PersistentVolume != nil {
		if class := managed.Storage.PersistentVolume.StorageClassName; class != nil {
			spec.EtcdVolume.Class = *class
		}
		if size := managed.Storage.PersistentVolume.Size; size != nil {
			spec.EtcdVolume.Size = size.String()
		}
	}
	for _, network := range hcp.Spec.Networking.ServiceNetwork {
		spec.ServiceCIDRs = append(spec.ServiceCIDRs, network.CIDR.String())
	}
	state, err := r.ControlPlanes.Ensure(spec)
	if err != nil {
		return fmt.Errorf("running the hosted API server: %w", err)
	}
	o.Endpoint = hyperv1.APIEndpoint{Host: state.Host, Port: state.Port}
	wasReady := meta.IsStatusConditionTrue(hcp.Status.Conditions, string(hyperv1.KubeAPIServerAvailable))
	// A server that was available and is being restarted, or started by a new runtime, is going to be available again:
	// this is not reported as an outage, as a real rolling restart causes none.
	if !state.Ready && (state.Settled || !wasReady) {
		o.Phase = min(o.Phase, schedule.APIServerStarting)
	}
	return nil
}

// observeAPIServer limits the phase to the state of a hosted API server that must not be started. One that runs is left alone.
func (r *Reconciler) observeAPIServer(hcp *hyperv1.HostedControlPlane, o *observation) {
	state, ok := r.ControlPlanes.State(hcp.Namespace)
	o.Endpoint = hcp.Status.ControlPlaneEndpoint
	if ok {
		o.Endpoint = hyperv1.APIEndpoint{Host: state.Host, Port: state.Port}
	}
	if !state.Ready {
		o.Phase = min(o.Phase, schedule.APIServerStarting)
	}
}
