package wire

import "errors"

// Long is an array or a map of a body with more entries than its form decodes. It is refused, unless the stored value has as many.
type Long struct {
	text []byte
	form *Form
	// count is the number of entries, and values the number without those of null and those that Form.DropEmpty names.
	count, values int
}

// decode returns the first elements of the array, at most most, or all entries of the map.
func (l Long) decode(most int) (any, error) {
	d := &decoder{text: l.text}
	if l.form.kind == mapForm {
		form := *l.form
		form.most = l.count
		return d.entries(&form)
	}
	values, _, err := d.elements(l.form.element, most)
	return values, err
}

// DecodeLong decodes the maps of a patch that may have more entries than their form permits: because the target has as many, or because null removes the
// others. It returns a *DuplicateError if one of them has a field twice.
func DecodeLong(target, patch map[string]any) error {
	for name, value := range patch {
		stored, _ := target[name].(map[string]any)
		var err error
		switch value := value.(type) {
		case map[string]any:
			err = DecodeLong(stored, value)
		case Long:
			if value.form.kind == mapForm && value.values <= max(value.form.most, len(stored)) {
				patch[name], err = value.decode(value.count)
			}
		}
		if duplicate := new(DuplicateError); errors.As(err, &duplicate) {
			return &DuplicateError{Field: name + "." + duplicate.Field}
		}
	}
	return nil
}
