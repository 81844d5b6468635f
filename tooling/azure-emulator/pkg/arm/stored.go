package arm

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"

	"github.com/hcpmesh/hcpmesh/tooling/azure-emulator/pkg/store"
)

// storedType describes a resource type of which the emulator knows only what Resource Manager and clients depend on. The other
// properties are stored and returned.
type storedType struct {
	// further lists api-versions besides that of the catalogue.
	further []string
	// name is the pattern of names; nil accepts every name that Resource Manager accepts.
	name *regexp.Regexp
	// global types have no region: their location is "global".
	global bool
	// taken is the code of the error for a name that another resource of the type has anywhere, or "" if names are not unique.
	taken string
	// implicit lists child resources that exist as long as the resource, as <type>/<name>. Clients change them and cannot delete them.
	implicit []string
	// immutable lists properties that cannot change, as paths with dots.
	immutable []string
	// computed returns the properties that the provider sets, as paths with dots. It is called for each write.
	computed func(r *Resource) map[string]any
	// check returns an error for a resource that the provider refuses. It is called before each write, after the identities were set.
	check func(c *call, r *Resource) error
	// permanent resources do not change after their creation, and exist as long as their parent: a further write has no effect.
	permanent bool
	// principal is the path of a computed property with the principal of an identity that the provider creates, or "".
	principal string
}

// namePattern matches the names that Resource Manager accepts for all types.
var namePattern = regexp.MustCompile(`^[^<>%&:\\?/#]{1,260}$`)

// putStored validates a resource of the catalogue and sets the fields that its provider owns.
func putStored(c *call, old, wanted *Resource) error {
	k := c.types[c.path.typeKey()]
	t := k.stored
	if err := c.checkName(k, old, wanted); err != nil {
		return err
	}
	if err := c.checkParent(); err != nil {
		return err
	}
	if err := c.checkLocation(k, old, wanted); err != nil {
		return err
	}
	if t.permanent && old != nil {
		*wanted = *old
		return nil
	}
	for _, path := range t.immutable {
		if old != nil && !reflect.DeepEqual(valueAt(old.Properties, path), valueAt(wanted.Properties, path)) {
			return badRequest("PropertyChangeNotAllowed", "Changing property 'properties.%s' is not allowed.", path)
		}
	}
	computed := map[string]any{}
	if t.computed != nil {
		computed = t.computed(wanted)
	}
	if err := c.checkReferences(wanted, computed); err != nil {
		return err
	}
	if err := c.setIdentity(old, wanted); err != nil {
		return err
	}
	if t.check != nil {
		if err := t.check(c, wanted); err != nil {
			return err
		}
	}
	for path, value := range computed {
		setAt(wanted.Properties, path, value)
	}
	if created, _ := valueAt(wanted.Properties, t.principal).(string); created != "" {
		if err := c.tx.Put(principals, created, wanted.ID); err != nil {
			return err
		}
	}
	if err := c.writeStorage(k, old, wanted); err != nil {
		return err
	}
	return c.createImplicit(k, old, wanted)
}

// checkName returns an error for a name that the type does not accept or that is taken.
func (c *call) checkName(k *resourceType, old, wanted *Resource) error {
	if !namePattern.MatchString(wanted.Name) || k.stored.name != nil && !k.stored.name.MatchString(wanted.Name) {
		return badRequest("InvalidResourceName", "The resource name '%s' is not valid for the type '%s'.", wanted.Name, k.name)
	}
	if old != nil || k.stored.taken == "" {
		return nil
	}
	all, err := store.All[Resource](c.tx, resources, "")
	if err != nil {
		return err
	}
	for _, r := range all {
		if strings.EqualFold(r.Type, k.name) && strings.EqualFold(r.Name, wanted.Name) {
			return &Error{Status: http.StatusConflict, Code: k.stored.taken, Message: fmt.Sprintf("The name '%s' is already taken.", wanted.Name)}
		}
	}
	return nil
}

// checkParent returns an error if the parent of a child resource, or the resource of an extension resource, does not exist, or if an
// operation on it or on one of its parents is in progress.
func (c *call) checkParent() error {
	if c.path.extension {
		extended, err := c.find(c.path.scope)
		switch {
		case err != nil:
			return err
		case extended == nil:
			return &Error{Status: http.StatusNotFound, Code: "ParentResourceNotFound", Message: fmt.Sprintf("Failed to perform 'write' on resource '%s', because its scope '%s' could not be found.", c.path.id, c.path.scope)}
		case extended.Operation != "":
			return inProgress(extended)
		}
	}
	id := c.path.id
	for n := len(c.path.names); n > 1; n-- {
		id = id[:strings.LastIndex(id[:strings.LastIndex(id, "/")], "/")]
		parent, err := c.find(id)
		switch {
		case err != nil:
			return err
		case parent == nil:
			return parentNotFound(c.path, strings.Join(c.path.names[:n-1], "/"))
		case parent.Operation != "":
			return inProgress(parent)
		}
	}
	return nil
}

// checkLocation normalizes the location of a resource. The location of a resource cannot change.
func (c *call) checkLocation(k *resourceType, old, wanted *Resource) error {
	var requested struct {
		Location string `json:"location"`
	}
	if err := decode(c.body, &requested); err != nil {
		return err
	}
	location := strings.ToLower(strings.ReplaceAll(requested.Location, " ", ""))
	switch {
	case !k.tracked:
		wanted.Location, wanted.Tags = "", nil
		return nil
	case location == "":
		return nil // put reports a new resource without a location
	case k.stored.global != (location == "global"):
		return badRequest("LocationNotAvailableForResourceType", "The provided location '%s' is not available for resource type '%s'.", requested.Location, k.name)
	case old != nil && location != old.Location:
		return &Error{Status: http.StatusConflict, Code: "InvalidResourceLocation", Message: fmt.Sprintf(
			"The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.",
			old.Name, old.Location, c.path.group, requested.Location)}
	}
	wanted.Location = location
	return nil
}

// checkReferences returns an error if a property is the ID of a resource of an emulated type that does not exist. It skips the properties that
// the provider computes, by their paths: a client that sends a resource as it read it sends them, too.
func (c *call) checkReferences(wanted *Resource, computed map[string]any) error {
	var check func(path string, value any) error
	check = func(path string, value any) error {
		if _, skip := computed[strings.TrimPrefix(path, "properties.")]; skip {
			return nil
		}
		switch v := value.(type) {
		case map[string]any:
			for name, inner := range v {
				if err := check(path+"."+name, inner); err != nil {
					return err
				}
			}
		case []any:
			for i, inner := range v {
				if err := check(fmt.Sprintf("%s[%d]", path, i), inner); err != nil {
					return err
				}
			}
		case string:
			return c.checkReference(path, v, wanted)
		}
		return nil
	}
	return check("properties", wanted.Properties)
}

// checkReference checks one property. A resource may refer to itself and to its own children, which may not exist yet.
func (c *call) checkReference(at, id string, wanted *Resource) error {
	if !strings.HasPrefix(strings.ToLower(id), "/subscriptions/") || strings.HasPrefix(strings.ToLower(id)+"/", strings.ToLower(wanted.ID)+"/") {
		return nil
	}
	p, err := parsePath(id)
	if err != nil || p.name == "" || p.operation != "" || c.types[p.typeKey()] == nil {
		return nil // not the ID of an emulated resource, for example a scope of a data plane
	}
	r, err := c.find(p.id)
	if err != nil || r != nil {
		return err
	}
	return badRequest("InvalidResourceReference", "Resource %s referenced by the property '%s' of resource %s was not found. Please make sure that the referenced resource exists.", id, at, wanted.ID)
}

// createImplicit creates the children that exist as long as a new resource.
func (c *call) createImplicit(k *resourceType, old, wanted *Resource) error {
	if old != nil {
		return nil
	}
	for _, child := range k.stored.implicit {
		kind, name, _ := strings.Cut(child, "/")
		r := &Resource{ID: wanted.ID + "/" + child, Name: name, Type: k.name + "/" + kind, ETag: wanted.ETag, Properties: map[string]any{"provisioningState": "Succeeded"}}
		if err := c.save(r); err != nil {
			return err
		}
	}
	return nil
}

// canDeleteStored returns an error for a resource that exists as long as its parent, or during an operation on its parent.
func canDeleteStored(c *call, r *Resource) error {
	if err := c.checkParent(); err != nil {
		return err
	}
	if k := c.types[typeKeyOf(r)]; k != nil && k.stored != nil && k.stored.permanent {
		return &Error{Status: http.StatusMethodNotAllowed, Code: "MethodNotAllowed", Message: fmt.Sprintf("The requested resource '%s' does not support http method 'DELETE'.", r.ID)}
	}
	at := strings.LastIndex(r.Type, "/")
	parent := c.types[strings.ToLower(r.Type[:at])]
	if parent == nil || parent.stored == nil {
		return nil
	}
	for _, child := range parent.stored.implicit {
		if strings.EqualFold(child, r.Type[at+1:]+"/"+r.Name) {
			return &Error{Status: http.StatusMethodNotAllowed, Code: "OperationNotAllowed", Message: fmt.Sprintf("The resource '%s' exists as long as its parent and cannot be deleted.", r.ID)}
		}
	}
	return nil
}

// valueAt returns the value at a path with dots, or nil.
func valueAt(properties map[string]any, path string) any {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return properties[name]
	}
	inner, _ := properties[name].(map[string]any)
	return valueAt(inner, rest)
}

// setAt sets the value at a path with dots.
func setAt(properties map[string]any, path string, value any) {
	name, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		properties[name] = value
		return
	}
	inner, ok := properties[name].(map[string]any)
	if !ok {
		inner = map[string]any{}
		properties[name] = inner
	}
	setAt(inner, rest, value)
}
