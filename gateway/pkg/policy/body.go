package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/hcpmesh/hcpmesh/api/wire"
)

// MaxReadBody is the maximum size in bytes of a body that ReadsBody names. API servers accept no larger ones.
const MaxReadBody = 3 << 20

// fields are the fields of an object that are recorded, with those of their values; a field without fields is recorded as it is. A list has the
// fields of its elements. All other fields may contain Secrets, and are removed.
type fields map[string]fields

// The fields of what runs commands. The variables of env are expanded in command and args.
var (
	handler   = fields{"exec": nil}
	container = fields{"name": nil, "image": nil, "command": nil, "args": nil, "env": nil, "envFrom": nil, "lifecycle": {"postStart": handler, "preStop": handler},
		"livenessProbe": handler, "readinessProbe": handler, "startupProbe": handler}
	podSpec  = fields{"containers": container, "initContainers": container, "ephemeralContainers": container, "serviceAccountName": nil, "serviceAccount": nil, "nodeName": nil}
	pod      = fields{"spec": podSpec}
	template = fields{"template": pod}
	workload = fields{"spec": template}
)

// The fields of what gives access.
var (
	role    = fields{"rules": nil, "aggregationRule": nil}
	binding = fields{"roleRef": nil, "subjects": nil, "userNames": nil, "groupNames": nil}
)

// body is how the body of a request for a resource that creates, replaces or patches is read.
type body struct {
	// recorded are the fields that are recorded; nil if the body is not recorded. Those of every object are added.
	recorded fields
	// forbidden are the types of objects that give access without an end.
	forbidden []string
	// lifetime is set if the object gives access for spec.expirationSeconds.
	lifetime *lifetime
	// endless is set if the object itself gives access that does not end with the session.
	endless bool
	// removed is set if the object gives access until somebody removes it, which the gateway does at the end of the session.
	removed bool
}

// lifetime is the default of spec.expirationSeconds in seconds, and what has it.
type lifetime struct {
	what     string
	standard int64
}

// minLifetime is the least spec.expirationSeconds that API servers accept.
const minLifetime = 600

// bodies are the resources whose bodies are read, by their Kind in any version: those that run commands, and those that give access.
var bodies = map[string]body{
	"pods":                                {recorded: pod},
	"pods/ephemeralcontainers":            {recorded: pod},
	"podtemplates":                        {recorded: template},
	"replicationcontrollers":              {recorded: workload},
	"deployments.apps":                    {recorded: workload},
	"daemonsets.apps":                     {recorded: workload},
	"statefulsets.apps":                   {recorded: workload},
	"replicasets.apps":                    {recorded: workload},
	"controllerrevisions.apps":            {recorded: fields{"data": workload}},
	"jobs.batch":                          {recorded: workload},
	"cronjobs.batch":                      {recorded: fields{"spec": {"jobTemplate": workload}}},
	"deploymentconfigs.apps.openshift.io": {recorded: workload},

	"serviceaccounts":       {recorded: fields{"secrets": nil}, removed: true},
	"serviceaccounts/token": {recorded: fields{"spec": nil}, lifetime: &lifetime{"token", 3600}},
	"secrets":               {forbidden: []string{"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"}},
	"certificatesigningrequests.certificates.k8s.io":          {recorded: fields{"spec": nil}, lifetime: &lifetime{"certificate", 365 * 24 * 3600}, removed: true},
	"certificatesigningrequests.certificates.k8s.io/approval": {recorded: fields{"status": {"conditions": nil}}, removed: true},
	"certificatesigningrequests.certificates.k8s.io/status":   {recorded: fields{"status": {"conditions": nil, "certificate": nil}}, removed: true},
	"roles.rbac.authorization.k8s.io":                         {recorded: role, removed: true},
	"clusterroles.rbac.authorization.k8s.io":                  {recorded: role, removed: true},
	"rolebindings.rbac.authorization.k8s.io":                  {recorded: binding, removed: true},
	"clusterrolebindings.rbac.authorization.k8s.io":           {recorded: binding, removed: true},
	"roles.authorization.openshift.io":                        {recorded: role, removed: true},
	"clusterroles.authorization.openshift.io":                 {recorded: role, removed: true},
	"rolebindings.authorization.openshift.io":                 {recorded: binding, removed: true},
	"clusterrolebindings.authorization.openshift.io":          {recorded: binding, removed: true},
	"groups.user.openshift.io":                                {recorded: fields{"users": nil}, removed: true},
	"oauthaccesstokens.oauth.openshift.io":                    {endless: true},
	"oauthauthorizetokens.oauth.openshift.io":                 {endless: true},
}

// object are the fields of every object that are recorded.
var object = fields{"apiVersion": nil, "kind": nil, "metadata": {"name": nil, "generateName": nil, "namespace": nil}}

// ReadsBody reports whether ReadBody must read the body of a permitted request before it is forwarded: one that runs commands, or gives access.
func (r *Request) ReadsBody() bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		_, found := bodies[r.Kind()]
		return r.IsResource && found
	}
	return false
}

// GivesAccess reports whether a permitted request may create or change what gives access until somebody removes it.
func (r *Request) GivesAccess() bool { return r.ReadsBody() && bodies[r.Kind()].removed }

// KeepAnnotation is the annotation of an object that the gateway does not remove at the end of the session that creates it. Its value is the reason.
const KeepAnnotation = "access.hcpmesh.io/keep"

// Record is what the recording of a request has.
type Record struct {
	Verb      string `json:"verb"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	// Name is the name in the path, or else the one that the body asks for.
	Name string `json:"name,omitempty"`
	// Keep is the value of KeepAnnotation.
	Keep string `json:"keep,omitempty"`
	// Type is the media type of the body: an object, or a kind of patch.
	Type string `json:"type"`
	// Body has the recorded fields of the object or of the patch.
	Body any `json:"body"`
}

// ReadBody returns what of a body is recorded before the request is forwarded; nil if nothing is. It returns an error for a body that the API server may
// understand differently, and for one that asks for access after the end of the session. contentTypes are the values of that header.
func ReadBody(r *Request, contentTypes []string, content []byte, now, end time.Time) (*Record, error) {
	rule := bodies[r.Kind()]
	if rule.endless {
		return nil, refused("The mode admin does not permit %s of %s: the token would not end with the session.", r.Verb, r.Kind())
	}
	media, err := mediaType(r, contentTypes)
	if err != nil {
		return nil, err
	}
	value, err := decode(media, content)
	if err != nil {
		return nil, err
	}
	recorded := fields{}
	for _, some := range []fields{object, rule.recorded} {
		for name, inner := range some {
			recorded[name] = inner
		}
	}
	record := &Record{Verb: r.Verb, Kind: r.Kind(), Namespace: r.Namespace, Name: r.Name, Type: media}
	if media == jsonPatch {
		if record.Body, err = keepOperations(value, recorded); err != nil {
			return nil, err
		}
	} else {
		asked, ok := value.(map[string]any)
		if !ok {
			return nil, errNoObject()
		}
		if kind, _ := asked["type"].(string); slices.Contains(rule.forbidden, kind) {
			return nil, refused("The mode admin does not permit Secrets of the type %s: their tokens do not end with the session. Use kubectl create token --duration=%ds.", kind, minLifetime)
		}
		if rule.lifetime != nil && (r.Method == http.MethodPost || media == applyPatch) {
			if err := rule.lifetime.check(asked, now, end); err != nil {
				return nil, err
			}
		}
		metadata, _ := asked["metadata"].(map[string]any)
		for _, field := range []string{"name", "generateName"} {
			if name, _ := metadata[field].(string); record.Name == "" {
				record.Name = name
			}
		}
		annotations, _ := metadata["annotations"].(map[string]any)
		record.Keep, _ = annotations[KeepAnnotation].(string)
		record.Body = keep(asked, recorded)
	}
	if rule.recorded == nil {
		return nil, nil
	}
	return record, nil
}

// The media types of bodies that are read.
const (
	plainJSON      = "application/json"
	plainYAML      = "application/yaml"
	plainProtobuf  = "application/vnd.kubernetes.protobuf"
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// mediaType returns the media type of a body. API servers read one without a type as JSON.
func mediaType(r *Request, contentTypes []string) (string, error) {
	media, permitted := plainJSON, []string{plainJSON, plainYAML, plainProtobuf}
	if r.Method == http.MethodPatch {
		media, permitted = "", []string{strategicPatch, mergePatch, jsonPatch, applyPatch}
	}
	if len(contentTypes) > 1 {
		return "", invalid("The header Content-Type must exist at most once.")
	}
	if len(contentTypes) == 1 && contentTypes[0] != "" {
		parsed, _, err := mime.ParseMediaType(contentTypes[0])
		if err != nil {
			return "", invalid("The header Content-Type is not a media type.")
		}
		media = parsed
	}
	if !slices.Contains(permitted, media) {
		return "", invalid("The session gateway must read the body of %s of %s, and cannot read the Content-Type %q. Use %s.", r.Verb, r.Kind(), media, strings.Join(permitted, ", "))
	}
	return media, nil
}

// decode returns the value in a body, as API servers decode it: names of fields are case-sensitive. A field that exists twice is refused. What is refused is
// found before the value is decoded, so that it costs no more than what is accepted.
func decode(media string, content []byte) (value any, err error) {
	if media == plainProtobuf {
		decoded, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode(content, nil, nil)
		if err == nil {
			content, err = json.Marshal(decoded)
		}
		if err != nil {
			return nil, invalid("The body of the request is not an object of Kubernetes in protobuf. Use %s.", plainJSON) // the error may quote the body
		}
	}
	if media == plainYAML || media == applyPatch {
		if begins(content, '[') {
			return nil, errNoObject()
		}
		if content, err = yaml.YAMLToJSONStrict(content); err != nil {
			return nil, invalid("The body of the request is not YAML, or has a field twice.") // the error may quote the body
		}
	}
	switch {
	case media == jsonPatch && begins(content, '{'):
		return nil, invalid("The JSON patch is not a list.")
	case media != jsonPatch && begins(content, '['):
		return nil, errNoObject()
	}
	value, err = wire.ParseValue(content)
	switch duplicate := new(wire.DuplicateError); {
	case errors.As(err, &duplicate):
		return nil, invalid("The body of the request has a field twice.")
	case err != nil:
		return nil, invalid("The body of the request is not JSON.")
	}
	return value, nil
}

// begins reports whether a text begins with the byte b, apart from white space.
func begins(text []byte, b byte) bool {
	text = bytes.TrimLeft(text, " \t\r\n")
	return len(text) > 0 && text[0] == b
}

// errNoObject returns the error for a body that is not an object.
func errNoObject() error { return invalid("The body of the request is not an object.") }

// keep returns a value with only the recorded fields. Fields that are removed by null stay.
func keep(value any, recorded fields) any {
	if recorded == nil {
		return value
	}
	switch value := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, inner := range value {
			if some, found := recorded[name]; found {
				kept[name] = keep(inner, some)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(value))
		for i, element := range value {
			kept[i] = keep(element, recorded)
		}
		return kept
	}
	return nil // an object is expected here: the API server refuses the value, or removes what the field has
}

// operation is an operation of a JSON patch (RFC 6902) as it is recorded.
type operation struct {
	Op   string `json:"op"`
	Path string `json:"path"`
	// Value is nil if no recorded field is at the path.
	Value any `json:"value,omitempty"`
}

// keepOperations returns the operations of a JSON patch with only the recorded fields. It refuses operations whose value is in the object that is patched.
func keepOperations(value any, recorded fields) ([]operation, error) {
	all, ok := value.([]any)
	if !ok {
		return nil, invalid("The JSON patch is not a list.")
	}
	kept := []operation{}
	for i, each := range all {
		asked, _ := each.(map[string]any)
		op, _ := asked["op"].(string)
		path, isText := asked["path"].(string)
		switch {
		case !slices.Contains([]string{"add", "replace", "remove", "test"}, op):
			return nil, invalid("The session gateway cannot read operation %d of the JSON patch: op must be add, replace, remove or test.", i)
		case !isText || path != "" && path[0] != '/':
			return nil, invalid("The session gateway cannot read operation %d of the JSON patch: path must be empty or begin with a slash.", i)
		}
		o := operation{Op: op, Path: path}
		if at, found := descend(recorded, path); found {
			o.Value = keep(asked["value"], at)
		}
		kept = append(kept, o)
	}
	return kept, nil
}

// descend returns the recorded fields of the value at a JSON pointer (RFC 6901). found is false if nothing of it is recorded.
func descend(recorded fields, pointer string) (at fields, found bool) {
	for i, name := range strings.Split(pointer, "/") {
		if i == 0 {
			continue
		}
		if recorded == nil {
			return nil, true
		}
		if _, err := strconv.Atoi(name); err == nil || name == "-" {
			continue // an element has the fields of its list
		}
		if recorded, found = recorded[strings.NewReplacer("~1", "/", "~0", "~").Replace(name)]; !found {
			return nil, false
		}
	}
	return recorded, true
}

// check returns an error unless what a body asks for expires before the end of the session.
func (l *lifetime) check(asked map[string]any, now, end time.Time) error {
	seconds := l.standard
	if spec, _ := asked["spec"].(map[string]any); spec["expirationSeconds"] != nil {
		number, _ := spec["expirationSeconds"].(json.Number)
		var err error
		if seconds, err = number.Int64(); err != nil {
			return invalid("spec.expirationSeconds is not a whole number.")
		}
	}
	left := int64(math.Floor(end.Sub(now).Seconds()))
	at := end.UTC().Format(time.RFC3339)
	switch {
	case left < minLifetime:
		return refused("The session ends at %s, in %d seconds, and API servers issue no %s for less than %d: no spec.expirationSeconds is possible. Open another session and request the %s at its beginning.", at, left, l.what, minLifetime, l.what)
	case seconds > left:
		return refused("The %s must not outlive the session, which ends at %s: set spec.expirationSeconds to %d to %d, not %d (kubectl create token --duration=%ds).", l.what, at, minLifetime, left, seconds, minLifetime)
	}
	return nil
}

// Text returns the record as it is in the recording.
func (r *Record) Text() ([]byte, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, errors.New("the body of a request cannot be encoded") // the error may quote the body
	}
	return append(text, '\n'), nil
}
