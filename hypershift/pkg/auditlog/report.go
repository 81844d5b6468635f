package auditlog

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	hyperv1 "github.com/openshift/hypershift/api/hypershift/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/contract"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/ownwrites"
	"github.com/hcpmesh/hcpmesh/internal/credentialuse"
)

// manager owns the report on HostedClusters.
const manager = client.FieldOwner("break-glass-audit")

// changeBuffer is how much news may wait to be written; whoever reads a log waits when it is full.
const changeBuffer = 256

// Reporter writes the uses of break-glass credentials on HostedClusters. What it has written is all that it needs to know
// after a restart, for logs are then read again.
type Reporter struct {
	management client.Client
	log        *slog.Logger
	changes    chan event.GenericEvent
	done       <-chan struct{}

	mu    sync.Mutex
	known map[string]credentialuse.Report // by control plane
}

// NewReporter returns a reporter that takes uses until ctx is over.
func NewReporter(ctx context.Context, management client.Client, log *slog.Logger) *Reporter {
	return &Reporter{management: management, log: log, changes: make(chan event.GenericEvent, changeBuffer), done: ctx.Done(),
		known: map[string]credentialuse.Report{}}
}

// Used takes the use of a credential of a control plane.
func (r *Reporter) Used(controlPlane string, use credentialuse.Use) {
	if time.Since(use.Last) > credentialuse.Kept {
		return
	}
	r.mu.Lock()
	report := r.known[controlPlane]
	if report == nil {
		report = credentialuse.Report{}
		r.known[controlPlane] = report
	}
	news := report.Note(use)
	report.Forget(time.Now())
	r.mu.Unlock()
	if !news {
		return
	}
	select {
	case r.changes <- event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controlPlane}}}:
	case <-r.done:
	}
}

// Forget drops what is known of a control plane that is gone.
func (r *Reporter) Forget(controlPlane string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, controlPlane)
}

// SetupWithManager registers the controller that writes reports.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("break-glass-audit").
		WatchesRawSource(source.Channel(r.changes, &handler.EnqueueRequestForObject{})).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			err := r.reconcile(ctx, request.Name)
			if apierrors.IsConflict(err) {
				return reconcile.Result{RequeueAfter: ownwrites.CatchUp}, nil
			}
			return reconcile.Result{}, err
		}))
	if err != nil {
		return fmt.Errorf("setting up the controller of credentials' uses: %w", err)
	}
	return nil
}

// reconcile brings a HostedCluster's report in line with what is known.
func (r *Reporter) reconcile(ctx context.Context, controlPlane string) error {
	hc, err := r.hostedCluster(ctx, controlPlane)
	if err != nil {
		return err
	}
	if hc == nil {
		// The last words of a server that was removed.
		r.Forget(controlPlane)
		return nil
	}
	report := credentialuse.Decode(hc.Annotations[credentialuse.Annotation])
	var told []credentialuse.Use
	r.mu.Lock()
	for _, use := range r.known[controlPlane].Uses() {
		if report.Note(use) {
			told = append(told, use)
		}
	}
	r.mu.Unlock()
	if len(told) == 0 {
		return nil
	}
	report.Forget(time.Now())
	text, err := report.Encode()
	if err != nil {
		return err
	}
	next := hc.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[credentialuse.Annotation] = text
	err = r.management.Patch(ctx, next, ownwrites.Locked(hc), manager)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reporting the use of credentials on HostedCluster %s/%s: %w", hc.Namespace, hc.Name, err)
	}
	for _, use := range told {
		r.log.Info("a break-glass credential is used", "controlPlane", controlPlane, "class", credentialuse.Class(use.User), "user", use.User,
			"fingerprint", use.Fingerprint, "addresses", use.Addresses, "request", use.Request)
	}
	return nil
}

// hostedCluster finds the HostedCluster of a control plane; nil if there is none any more.
func (r *Reporter) hostedCluster(ctx context.Context, controlPlane string) (*hyperv1.HostedCluster, error) {
	var planes hyperv1.HostedControlPlaneList
	if err := r.management.List(ctx, &planes, client.InNamespace(controlPlane)); err != nil {
		return nil, fmt.Errorf("listing the control planes of namespace %s: %w", controlPlane, err)
	}
	if len(planes.Items) != 1 {
		return nil, nil
	}
	namespace, name, _ := strings.Cut(planes.Items[0].Annotations[contract.HostedClusterAnnotation], "/")
	var hc hyperv1.HostedCluster
	err := r.management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &hc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting the HostedCluster of %s: %w", controlPlane, err)
	}
	return &hc, nil
}
