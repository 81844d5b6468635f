package hostedapi

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/controlplane"
	"github.com/hcpmesh/hcpmesh/hypershift/pkg/readyourwrites"
	"github.com/hcpmesh/hcpmesh/internal/hostedreport"
	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// useManager is the field manager of the report on HostedClusters.
const useManager = client.FieldOwner("break-glass-audit")

// useBuffer is the number of changes that may wait to be written. Readers of logs block when it is full.
const useBuffer = 256

// UseReporter writes the uses of break-glass credentials to an annotation of HostedClusters. It needs no other state after
// a restart, because the logs are read again.
type UseReporter struct {
	management client.Client
	log        *slog.Logger
	changes    chan event.GenericEvent
	done       <-chan struct{}

	mu   sync.Mutex
	uses map[string]hostedreport.CredentialReport // by control plane
}

// NewUseReporter returns a UseReporter that accepts uses until ctx ends.
func NewUseReporter(ctx context.Context, management client.Client, log *slog.Logger) *UseReporter {
	return &UseReporter{management: management, log: log, changes: make(chan event.GenericEvent, useBuffer), done: ctx.Done(),
		uses: map[string]hostedreport.CredentialReport{}}
}

// RecordUse records the use of a credential of a control plane.
func (r *UseReporter) RecordUse(controlPlane string, use hostedreport.CredentialUse) {
	if time.Since(use.Last) > hostedreport.Kept {
		return
	}
	r.mu.Lock()
	report := r.uses[controlPlane]
	if report == nil {
		report = hostedreport.CredentialReport{}
		r.uses[controlPlane] = report
	}
	changed := report.Note(use)
	report.Forget(time.Now())
	r.mu.Unlock()
	if !changed {
		return
	}
	select {
	case r.changes <- event.GenericEvent{Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: controlPlane}}}:
	case <-r.done:
	}
}

// Forget drops the uses of a control plane that was removed.
func (r *UseReporter) Forget(controlPlane string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.uses, controlPlane)
}

// SetupWithManager registers the controller that writes reports.
func (r *UseReporter) SetupWithManager(mgr ctrl.Manager, newQueue readyourwrites.NewQueue) error {
	err := ctrl.NewControllerManagedBy(mgr).Named("break-glass-audit").
		WatchesRawSource(source.Channel(r.changes, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{NewQueue: newQueue}).
		Complete(reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			err := r.reconcile(ctx, request.Name)
			if apierrors.IsConflict(err) {
				return reconcile.Result{RequeueAfter: readyourwrites.RetryDelay}, nil
			}
			return reconcile.Result{}, err
		}))
	if err != nil {
		return fmt.Errorf("setting up the controller of credentials' uses: %w", err)
	}
	return nil
}

// reconcile adds new uses to the report of a HostedCluster.
func (r *UseReporter) reconcile(ctx context.Context, controlPlane string) error {
	hc, err := controlplane.HostedCluster(ctx, r.management, controlPlane)
	if err != nil {
		return err
	}
	if hc == nil {
		// The server was removed, and its log was read to the end.
		r.Forget(controlPlane)
		return nil
	}
	report := hostedreport.DecodeCredentials(hc.Annotations[hostedreport.CredentialAnnotation])
	var reported []hostedreport.CredentialUse
	r.mu.Lock()
	for _, use := range r.uses[controlPlane].Uses() {
		if report.Note(use) {
			reported = append(reported, use)
		}
	}
	r.mu.Unlock()
	if len(reported) == 0 {
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
	next.Annotations[hostedreport.CredentialAnnotation] = text
	err = r.management.Patch(ctx, next, readyourwrites.LockedPatch(hc), useManager)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reporting the use of credentials on HostedCluster %s/%s: %w", hc.Namespace, hc.Name, err)
	}
	for _, use := range reported {
		r.log.Info("break-glass credential used", logkey.ControlPlane, controlPlane, logkey.Class, hostedreport.CredentialClass(use.User), logkey.User, use.User,
			logkey.Fingerprint, use.Fingerprint, logkey.Remote, use.Addresses, logkey.Action, use.Request)
	}
	return nil
}
