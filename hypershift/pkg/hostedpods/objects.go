package hostedpods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/hcpmesh/hcpmesh/hypershift/pkg/hostedapi"
)

// Names and ports in the namespace of a control plane. Those of Deployment, StatefulSet and Services are HyperShift's.
const (
	apiServerName   = "kube-apiserver"
	apiServerPort   = 6443
	filesName       = "kube-apiserver-files"
	etcdName        = "etcd"
	etcdServiceName = "etcd-client"
	etcdPort        = 2379
	// etcdHealthPort serves health and metrics without certificates.
	etcdHealthPort = 2381
)

// The PriorityClasses of the chart of the runtime, with HyperShift's names.
const (
	etcdPriority      = "hypershift-etcd"
	apiServerPriority = "hypershift-api-critical"
)

// ComponentLabel is on each object of this package; its value is the name of the component. It is HyperShift's.
const ComponentLabel = "hypershift.openshift.io/control-plane-component"

// restartAnnotation is on the pods of an API server. Its value changes when they have to be replaced.
const restartAnnotation = "runtime.hcpmesh.io/configuration"

// filesAnnotation is on the pods of an API server, and not in their template. Its value is the digest of the files.
const filesAnnotation = "runtime.hcpmesh.io/files"

// Folders of the containers.
const (
	filesDir = "/etc/kubernetes/files"
	etcdDir  = "/etc/kubernetes/etcd"
	runDir   = "/run/kubernetes"
	dataDir  = "/var/lib/etcd"
)

// user is the user of all images of the repository.
const user int64 = 65532

func labels(component string) map[string]string {
	return map[string]string{"app": component, ComponentLabel: component}
}

// serviceHost returns the name of a Service in the DNS of the management cluster.
func serviceHost(name, namespace string) string { return name + "." + namespace + ".svc" }

// digest returns a short identification of texts.
func digest(texts ...[]byte) string {
	hash := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(hash, "%d:%s", len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil))[:32]
}

// identities returns the objects of a control plane by their names, in the order of their deletion.
func identities(namespace string) []client.Object {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: namespace, Name: name} }
	return []client.Object{
		&appsv1.Deployment{ObjectMeta: meta(apiServerName)}, &appsv1.StatefulSet{ObjectMeta: meta(etcdName)},
		&corev1.Service{ObjectMeta: meta(apiServerName)}, &corev1.Service{ObjectMeta: meta(etcdServiceName)},
		&corev1.Secret{ObjectMeta: meta(filesName)}, &corev1.Secret{ObjectMeta: meta(etcdClient)}, &corev1.Secret{ObjectMeta: meta(etcdServer)}, &corev1.Secret{ObjectMeta: meta(etcdSigner)},
	}
}

// render returns the objects of a control plane in the order in which they are applied, and identifications of their content and of the files of
// the API server. etcd identifies the certificates of etcd.
func render(spec *hostedapi.Spec, etcd, apiServerImage, etcdImage string) (objects []client.Object, content, files string, err error) {
	if spec.EtcdVolume.Size == "" {
		return nil, "", "", errors.New("spec.etcd.managed.storage.persistentVolume.size: is required for an etcd of its own")
	}
	size, err := resource.ParseQuantity(spec.EtcdVolume.Size)
	if err != nil {
		return nil, "", "", fmt.Errorf("spec.etcd.managed.storage.persistentVolume.size: %w", err)
	}
	secret := &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: objectMeta(spec.Name, filesName, apiServerName), Type: corev1.SecretTypeOpaque, Data: spec.Files()}
	objects = []client.Object{
		secret, service(spec.Name, etcdServiceName, etcdName, etcdPort), service(spec.Name, apiServerName, apiServerName, apiServerPort),
		etcdSet(spec, size, etcd, etcdImage), apiServer(spec, etcd, apiServerImage),
	}
	text, err := json.Marshal(objects)
	if err != nil {
		return nil, "", "", err
	}
	fileText, err := json.Marshal(secret.Data)
	if err != nil {
		return nil, "", "", err
	}
	return objects, digest(text), digest(fileText), nil
}

// applyConfiguration returns an object for server-side apply: without the fields that are not set.
func applyConfiguration(object client.Object) (runtime.ApplyConfiguration, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	return client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content}), nil
}

func objectMeta(namespace, name, component string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels(component)}
}

// service returns a Service with one port.
func service(namespace, name, component string, port int32) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: objectMeta(namespace, name, component),
		Spec: corev1.ServiceSpec{Selector: labels(component),
			Ports: []corev1.ServicePort{{Name: "client", Port: port, TargetPort: intstr.FromInt32(port), Protocol: corev1.ProtocolTCP}}},
	}
}

// podSpec returns a pod of the standard restricted, with one container that has no token of Kubernetes.
func podSpec(priority string, container corev1.Container, volumes []corev1.Volume) corev1.PodSpec {
	id, grace := user, int64(30)
	container.ImagePullPolicy = corev1.PullIfNotPresent
	container.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	return corev1.PodSpec{
		AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false), PriorityClassName: priority, TerminationGracePeriodSeconds: &grace,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: new(true), RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{container}, Volumes: volumes,
	}
}

// probe returns a probe of a path.
func probe(scheme corev1.URIScheme, port int32, path string, period, failures int32) *corev1.Probe {
	return &corev1.Probe{PeriodSeconds: period, TimeoutSeconds: 5, FailureThreshold: failures,
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Scheme: scheme, Port: intstr.FromInt32(port), Path: path}}}
}

// resources returns requests and a limit of memory.
func resources(cpu, memory, memoryLimit string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memoryLimit)},
	}
}

// secretVolume returns a volume that the group of the pod can read.
func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: new(int32(0o440))}}}
}

// etcdSet returns the StatefulSet of etcd, which has one member.
func etcdSet(spec *hostedapi.Spec, size resource.Quantity, certificates, image string) *appsv1.StatefulSet {
	const peer = "http://127.0.0.1:2380" // there are no peers
	file := func(name string) string { return path.Join(etcdDir, name) }
	container := corev1.Container{
		Name: etcdName, Image: image,
		Args: []string{
			"--name=" + etcdName, "--data-dir=" + path.Join(dataDir, "data"),
			"--listen-client-urls=https://0.0.0.0:" + strconv.Itoa(etcdPort),
			"--advertise-client-urls=https://" + serviceHost(etcdServiceName, spec.Name) + ":" + strconv.Itoa(etcdPort),
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=" + etcdName + "=" + peer,
			"--listen-metrics-urls=http://0.0.0.0:" + strconv.Itoa(etcdHealthPort),
			"--client-cert-auth", "--trusted-ca-file=" + file(authority), "--cert-file=" + file(corev1.TLSCertKey), "--key-file=" + file(corev1.TLSPrivateKeyKey),
		},
		Env:       []corev1.EnvVar{{Name: "GOMEMLIMIT", Value: "460MiB"}},
		Ports:     []corev1.ContainerPort{{Name: "client", ContainerPort: etcdPort, Protocol: corev1.ProtocolTCP}},
		Resources: resources("50m", "100Mi", "512Mi"),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "data", MountPath: dataDir}, {Name: "certificates", MountPath: etcdDir, ReadOnly: true},
		},
		StartupProbe:   probe(corev1.URISchemeHTTP, etcdHealthPort, "/readyz", 1, 120),
		ReadinessProbe: probe(corev1.URISchemeHTTP, etcdHealthPort, "/readyz", 5, 3),
		LivenessProbe:  probe(corev1.URISchemeHTTP, etcdHealthPort, "/livez", 10, 6),
	}
	claim := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: labels(etcdName)}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeMode: new(corev1.PersistentVolumeFilesystem),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
	}}
	if class := spec.EtcdVolume.Class; class != "" {
		claim.Spec.StorageClassName = &class
	}
	return &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: objectMeta(spec.Name, etcdName, etcdName),
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(1)), ServiceName: etcdServiceName, Selector: &metav1.LabelSelector{MatchLabels: labels(etcdName)},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{claim},
			// The data is deleted with the control plane, and not with a change of its pods.
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels(etcdName), Annotations: map[string]string{restartAnnotation: certificates}},
				Spec:       podSpec(etcdPriority, container, []corev1.Volume{secretVolume("certificates", etcdServer)}),
			},
		},
	}
}

// apiServer returns the Deployment of the API server. It follows changes of its files; other changes replace its pod.
func apiServer(spec *hostedapi.Spec, certificates, image string) *appsv1.Deployment {
	file := func(name string) string { return path.Join(etcdDir, name) }
	container := corev1.Container{
		Name: apiServerName, Image: image,
		Args: append([]string{
			"--etcd-servers=https://" + serviceHost(etcdServiceName, spec.Name) + ":" + strconv.Itoa(etcdPort),
			"--etcd-cafile=" + file(authority), "--etcd-certfile=" + file(corev1.TLSCertKey), "--etcd-keyfile=" + file(corev1.TLSPrivateKeyKey),
			"--secure-port=" + strconv.Itoa(apiServerPort), "--advertise-address=$(POD_IP)",
			"--shutdown-delay-duration=5s", // the Service loses the pod before it refuses connections
		}, spec.Arguments(filesDir, runDir)...),
		Env: []corev1.EnvVar{
			{Name: "GOMEMLIMIT", Value: "900MiB"},
			{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}},
		},
		Ports:     []corev1.ContainerPort{{Name: "client", ContainerPort: apiServerPort, Protocol: corev1.ProtocolTCP}},
		Resources: resources("100m", "300Mi", "1Gi"),
		VolumeMounts: []corev1.VolumeMount{
			{Name: "files", MountPath: filesDir, ReadOnly: true}, {Name: "etcd", MountPath: etcdDir, ReadOnly: true}, {Name: "run", MountPath: runDir},
		},
		StartupProbe:   probe(corev1.URISchemeHTTPS, apiServerPort, "/readyz", 1, 180),
		ReadinessProbe: probe(corev1.URISchemeHTTPS, apiServerPort, "/readyz", 5, 2),
		LivenessProbe:  probe(corev1.URISchemeHTTPS, apiServerPort, "/livez?exclude=etcd", 10, 3),
	}
	volumes := []corev1.Volume{secretVolume("files", filesName), secretVolume("etcd", etcdClient),
		{Name: "run", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: objectMeta(spec.Name, apiServerName, apiServerName),
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels(apiServerName)},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0))}},
			Template: corev1.PodTemplateSpec{
				// The server does not follow changes of these.
				ObjectMeta: metav1.ObjectMeta{Labels: labels(apiServerName), Annotations: map[string]string{restartAnnotation: digest(spec.ServiceAccountKey, []byte(spec.RestartDate), []byte(certificates))}},
				Spec:       podSpec(apiServerPriority, container, volumes),
			},
		},
	}
}
