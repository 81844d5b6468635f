package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// provisionerName is the provisioner of Options.StorageClass.
	provisionerName = "hcpmesh.io/folders"
	// nodeVolumes is the folder of volumes in a node. It is below /var and survives the node.
	nodeVolumes = "/var/lib/volumes"

	// The scheduler sets selectedNode on a claim when it has chosen the node of its first pod. The controller of volumes deletes no
	// volume with provisionedBy of a provisioner outside of Kubernetes.
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

// provisioner creates volumes as folders of the node on which the first pod with the volume was scheduled, and deletes those that are
// released. All later pods with a volume run on its node, as pods with a disk of one zone do. kubelet gives a folder the group of the
// pod. The size of a folder is not limited.
type provisioner struct {
	cluster *Cluster
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer
	queue   workqueue.TypedRateLimitingInterface[item]
}

// item is a claim or a volume that changed.
type item struct {
	volume bool
	key    string
}

// startStorage creates the StorageClass and starts its provisioner.
func (c *Cluster) startStorage(ctx context.Context) error {
	if c.options.StorageClass == "" {
		return nil
	}
	class := fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: %s}, provisioner: %s, volumeBindingMode: WaitForFirstConsumer, reclaimPolicy: Delete}",
		c.options.StorageClass, provisionerName)
	if err := c.Apply(ctx, strings.NewReader(class)); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(c.client, 0)
	p := &provisioner{
		cluster: c,
		claims:  factory.Core().V1().PersistentVolumeClaims().Informer(),
		volumes: factory.Core().V1().PersistentVolumes().Informer(),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[item]()),
	}
	for volume, informer := range map[bool]cache.SharedIndexInformer{false: p.claims, true: p.volumes} {
		enqueue := func(object any) {
			if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
				p.queue.Add(item{volume, key})
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, object any) { enqueue(object) }}); err != nil {
			return err
		}
	}
	factory.Start(c.background.Done())
	stop := context.AfterFunc(c.background, p.queue.ShutDown)
	c.running.Go(func() {
		defer stop()
		p.run(c.background)
		factory.Shutdown()
	})
	return nil
}

// run processes changes until the queue is shut down. A change that fails is tried again with growing pauses.
func (p *provisioner) run(ctx context.Context) {
	for {
		next, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		if err := p.process(ctx, next); err != nil {
			p.queue.AddRateLimited(next)
		} else {
			p.queue.Forget(next)
		}
		p.queue.Done(next)
	}
}

func (p *provisioner) process(ctx context.Context, next item) error {
	informer := p.claims
	if next.volume {
		informer = p.volumes
	}
	object, exists, err := informer.GetStore().GetByKey(next.key)
	if err != nil || !exists {
		return err
	}
	switch object := object.(type) {
	case *corev1.PersistentVolumeClaim:
		if p.isWaiting(object) {
			return p.create(ctx, object)
		}
	case *corev1.PersistentVolume:
		if p.isReleased(object) {
			return p.delete(ctx, object)
		}
	}
	return nil
}

// isWaiting reports whether a claim needs a volume, for which a node is chosen.
func (p *provisioner) isWaiting(claim *corev1.PersistentVolumeClaim) bool {
	class := claim.Spec.StorageClassName
	return claim.DeletionTimestamp == nil && claim.Spec.VolumeName == "" && class != nil && *class == p.cluster.options.StorageClass && claim.Annotations[selectedNode] != ""
}

// isReleased reports whether a volume of the provisioner has lost its claim.
func (p *provisioner) isReleased(volume *corev1.PersistentVolume) bool {
	return volume.Annotations[provisionedBy] == provisionerName && volume.Status.Phase == corev1.VolumeReleased &&
		volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.DeletionTimestamp == nil
}

// folder returns the folder of a volume as the host sees it.
func (p *provisioner) folder(node, volume string) (string, error) {
	n, err := p.cluster.node(node)
	if err != nil {
		return "", err
	}
	return filepath.Join(n.dir, nodeVolumes, volume), nil
}

// create creates the volume of a claim. Its name follows from the UID of the claim, so that a repeated creation finds it.
func (p *provisioner) create(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	name, node := "pvc-"+string(claim.UID), claim.Annotations[selectedNode]
	folder, err := p.folder(node, name)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o770); err != nil {
		return err
	}
	onNode := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisionerName}},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName:              p.cluster.options.StorageClass,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: filepath.Join(nodeVolumes, name)}},
			ClaimRef:                      &corev1.ObjectReference{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				{MatchExpressions: []corev1.NodeSelectorRequirement{onNode}},
			}}},
		},
	}
	_, err = p.cluster.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// delete removes the folder of a volume, and then the volume.
func (p *provisioner) delete(ctx context.Context, volume *corev1.PersistentVolume) error {
	for _, n := range p.cluster.options.Nodes {
		folder, err := p.folder(n.Name, volume.Name)
		if err == nil {
			err = os.RemoveAll(folder)
		}
		if err != nil {
			return err
		}
	}
	err := p.cluster.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &volume.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
