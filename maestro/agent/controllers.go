package agent

import (
	"context"
	"fmt"
	"time"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	workclientset "open-cluster-management.io/api/client/work/clientset/versioned"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions"
	"open-cluster-management.io/ocm/pkg/work/spoke/auth"
	"open-cluster-management.io/ocm/pkg/work/spoke/conditions"
	"open-cluster-management.io/ocm/pkg/work/spoke/controllers/finalizercontroller"
	"open-cluster-management.io/ocm/pkg/work/spoke/controllers/manifestcontroller"
	"open-cluster-management.io/ocm/pkg/work/spoke/controllers/statuscontroller"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/hcpmesh/hcpmesh/internal/logkey"
)

// clients are the clients of the management cluster that the controllers need.
type clients struct {
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	kube       kubernetes.Interface
	extensions apiextensionsclient.Interface
	works      workclientset.Interface
	mapper     meta.RESTMapper
}

func newClients(config *rest.Config) (*clients, error) {
	failed := func(err error) error { return fmt.Errorf("creating a client of the management cluster: %w", err) }
	var c clients
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, failed(err)
	}
	if c.metadata, err = metadata.NewForConfig(config); err != nil {
		return nil, failed(err)
	}
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, failed(err)
	}
	if c.extensions, err = apiextensionsclient.NewForConfig(config); err != nil {
		return nil, failed(err)
	}
	if c.works, err = workclientset.NewForConfig(config); err != nil {
		return nil, failed(err)
	}
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, failed(err)
	}
	if c.mapper, err = apiutil.NewDynamicRESTMapper(config, http); err != nil {
		return nil, fmt.Errorf("discovering the kinds of the management cluster: %w", err)
	}
	return &c, nil
}

// startControllers starts the controllers and their informers and returns when the caches are filled.
func (a *Agent) startControllers(ctx context.Context, config *rest.Config, start func(func(context.Context))) error {
	c, err := newClients(config)
	if err != nil {
		return err
	}
	hubHash, err := a.hubHash(ctx, c.works.WorkV1().AppliedManifestWorks())
	if err != nil {
		return err
	}
	applied := newRecheckInformer(workinformers.NewSharedInformerFactory(c.works, 0).Work().V1().AppliedManifestWorks())
	if err := applied.Informer().AddIndexers(appliedObjectIndexers()); err != nil {
		return fmt.Errorf("indexing the applied objects: %w", err)
	}
	works := newWorkInformer(a.uplink.works)
	objects := newObjects(ctx, c.dynamic, a.o.Log)
	removals := newApplied(ctx, c.metadata, a.uplink.works, a.o.Log)
	removals.recheck = applied.recheck
	a.applied.Store(removals)
	runners, err := a.runners(ctx, config, c, hubHash, applied, works, objects, removals)
	if err != nil {
		return err
	}
	start(func(ctx context.Context) { applied.Informer().Run(ctx.Done()) })
	start(func(ctx context.Context) { works.Informer().Run(ctx.Done()) })
	for _, r := range runners {
		r.workers, r.log, r.backoff = a.o.Workers, a.o.Log, newBackoff()
		r.synced = []cache.InformerSynced{applied.Informer().HasSynced, works.Informer().HasSynced}
		start(r.run)
	}
	start(func(ctx context.Context) { <-ctx.Done(); objects.wait(); removals.wait() })
	strays := &orphanFinder{works: a.uplink.works, consumer: a.o.Consumer, hubHash: hubHash, applied: applied.Lister(), report: a.uplink.reportOrphans, interval: a.o.OrphanInterval, log: a.o.Log}
	start(strays.run)
	if !cache.WaitForCacheSync(ctx.Done(), applied.Informer().HasSynced, works.Informer().HasSynced) {
		return ctx.Err()
	}
	return nil
}

// runners returns the controllers with the wrappers of their syncs.
func (a *Agent) runners(ctx context.Context, config *rest.Config, c *clients, hubHash string, applied recheckInformer, works workInformer, objects *objects, removals *applied) ([]runner, error) {
	conditionReader, err := conditions.NewConditionReader()
	if err != nil {
		return nil, fmt.Errorf("preparing condition rules: %w", err)
	}
	hub, appliedClient := a.uplink.works, c.works.WorkV1().AppliedManifestWorks()
	lister, locks := freshLister{hub}, newWorkLocks()
	status := statuscontroller.NewAvailableStatusController(hub, works, lister, conditionReader, objects, a.o.MaxFeedbackBytes, a.o.StatusPoll)
	// The status of a work is read until the work is removed, so that the progress of its deletion is reported.
	ifExists := func(ctx context.Context, name string) (bool, error) {
		work, err := lister.Get(name)
		if err != nil {
			objects.forget(name)
			removals.forget(name)
			return true, nil
		}
		objects.registerAll(ctx, work, status.SyncContext().Queue())
		return false, nil
	}
	finalizer := &finalizer{works: hub, hubHash: hubHash, applied: appliedClient, lister: applied.Lister(), objects: c.dynamic, mapper: c.mapper}
	deleting := &deletingClient{applied: removals}
	confirming := confirmingClient{AppliedManifestWorkInterface: appliedClient, finalizer: finalizer, failed: &deleting.failed}
	releaser := &releaser{works: hub, finalizer: finalizer, objects: c.dynamic, discovery: c.kube.Discovery(), log: a.o.Log}
	beforeFinalizing := func(ctx context.Context, work string) (bool, error) {
		if deleting, err := lister.Get(work); err != nil || !deleting.DeletionTimestamp.IsZero() {
			removals.forget(work)
		}
		if err := finalizer.completeAppliedResources(ctx, work); err != nil {
			return false, err
		}
		// A failure must not stop the deletion. The server repeats the request.
		if err := releaser.release(ctx, work); err != nil {
			a.o.Log.WarnContext(ctx, "removing finalizers failed", logkey.Work, work, logkey.Error, err)
		}
		return false, nil
	}
	validator := secretOpener{auth.NewFactory(config, c.kube, works, a.o.Consumer, c.mapper).NewExecutorValidator(ctx, false), a.o.Consumer, a.o.SecretKeys}
	owners := &ownership{applied: removals, works: applied.Informer().GetIndexer()}
	apply := manifestcontroller.NewManifestWorkController(observedClient(c.dynamic, owners), c.kube, c.extensions, hub, works, lister,
		ownerClient{appliedClient}, applied, objects, hubHash, a.o.Consumer, c.mapper, validator)
	removals.apply = func(work string, after time.Duration) { apply.SyncContext().Queue().AddAfter(work, after) }
	removals.status = func(work string) { status.SyncContext().Queue().Add(work) }
	register := &applier{finalizer: finalizer, lister: lister, applied: removals}
	return []runner{
		{controller: apply, syncContext: withAttempt, wrap: a.uplink.traces.around(removals.reportAfter(retryApply(locks.guard(register.prepare), lister, apply.SyncContext().Queue)))},
		{controller: status, syncContext: lister.withDeletion, wrap: locks.guard(ifExists)},
		{controller: finalizercontroller.NewManifestWorkFinalizeController(hub, works, lister, appliedClient, applied, hubHash),
			wrap: locks.guard(beforeFinalizing)},
		{controller: finalizercontroller.NewAppliedManifestWorkFinalizeController(deleting.over(c.dynamic), confirming, applied, keepRegistered{objects}, a.o.Consumer)},
	}, nil
}
