package agent

import (
	"context"
	"fmt"

	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
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
)

// clients are the ways to the management cluster that the controllers want.
type clients struct {
	dynamic    dynamic.Interface
	kube       kubernetes.Interface
	extensions apiextensionsclient.Interface
	works      workclientset.Interface
	mapper     meta.RESTMapper
}

func connect(config *rest.Config) (*clients, error) {
	failed := func(err error) error { return fmt.Errorf("reach the management cluster: %w", err) }
	var c clients
	var err error
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
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
		return nil, fmt.Errorf("discover the management cluster's kinds: %w", err)
	}
	return &c, nil
}

// startControllers starts everything that works on the management cluster, and returns when the caches are filled.
func (a *Agent) startControllers(ctx context.Context, config *rest.Config, start func(func(context.Context))) error {
	c, err := connect(config)
	if err != nil {
		return err
	}
	hubHash, err := a.hubHash(ctx, c.works.WorkV1().AppliedManifestWorks())
	if err != nil {
		return err
	}
	applied := newNudgedInformer(workinformers.NewSharedInformerFactory(c.works, 0).Work().V1().AppliedManifestWorks())
	works := newWorkInformer(a.uplink.works)
	objects := newObjects(ctx, c.dynamic, a.o.Log, applied.nudge)
	runners, err := a.runners(ctx, config, c, hubHash, applied, works, objects)
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
	start(func(ctx context.Context) { applied.nudgeOften(ctx, objects.watchesAll) })
	start(func(ctx context.Context) { <-ctx.Done(); objects.wait() })
	strays := &strays{works: a.uplink.works, consumer: a.o.Consumer, hubHash: hubHash, applied: applied.Lister(), ask: a.uplink.askAbout, pause: a.o.StrayPause, log: a.o.Log}
	start(strays.run)
	if !cache.WaitForCacheSync(ctx.Done(), applied.Informer().HasSynced, works.Informer().HasSynced) {
		return ctx.Err()
	}
	return nil
}

// runners are the controllers, and what is done around each of their syncs.
func (a *Agent) runners(ctx context.Context, config *rest.Config, c *clients, hubHash string, applied nudgedInformer, works workInformer, objects *objects) ([]runner, error) {
	conditionReader, err := conditions.NewConditionReader()
	if err != nil {
		return nil, fmt.Errorf("prepare condition rules: %w", err)
	}
	hub, appliedClient := a.uplink.works, c.works.WorkV1().AppliedManifestWorks()
	lister, turns := freshLister{hub}, newTurns()
	// Nothing is applied for a work whose deletion has begun.
	ifAlive := func(_ context.Context, name string) (bool, error) {
		work, err := lister.Get(name)
		return err != nil || !work.DeletionTimestamp.IsZero(), nil
	}
	// A work's status is read as long as there is the work, so that one sees how far its deletion is.
	ifThere := func(_ context.Context, name string) (bool, error) {
		_, err := lister.Get(name)
		if err != nil {
			objects.forget(name)
		}
		return err != nil, nil
	}
	finalizer := &finalizer{works: hub, hubHash: hubHash, applied: appliedClient, lister: applied.Lister(), objects: c.dynamic, mapper: c.mapper}
	releaser := &releaser{works: hub, finalizer: finalizer, objects: c.dynamic, discovery: c.kube.Discovery(), log: a.o.Log}
	beforeFinalizing := func(ctx context.Context, work string) (bool, error) {
		if err := finalizer.prepare(ctx, work); err != nil {
			return false, err
		}
		// What cannot be looked at must not keep the rest of the deletion from going on; the server says it again.
		if err := releaser.release(ctx, work); err != nil {
			a.o.Log.Warn("not everything was released", "work", work, "error", err)
		}
		return false, nil
	}
	validator := auth.NewFactory(config, c.kube, works, a.o.Consumer, c.mapper).NewExecutorValidator(ctx, false)
	apply := manifestcontroller.NewManifestWorkController(c.dynamic, c.kube, c.extensions, hub, works, lister,
		appliedClient, applied, objects, hubHash, a.o.Consumer, c.mapper, validator)
	return []runner{
		{controller: apply, around: applying(turns.around(ifAlive), lister, apply.SyncContext().Queue)},
		{controller: statuscontroller.NewAvailableStatusController(hub, works, lister, conditionReader, objects, a.o.MaxFeedbackBytes, a.o.StatusPoll),
			around: turns.around(ifThere)},
		{controller: finalizercontroller.NewManifestWorkFinalizeController(hub, works, lister, appliedClient, applied, hubHash),
			around: turns.around(beforeFinalizing)},
		{controller: finalizercontroller.NewAppliedManifestWorkFinalizeController(c.dynamic, appliedClient, applied, untilGone{objects}, a.o.Consumer)},
	}, nil
}
