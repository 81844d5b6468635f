package wire

import "errors"

// Long is an array or a map of a body with more entries than its form decodes. It is refused, unless the stored value has as many.
type Long struct {
	text []byte
	form *Form
	// count is the number of entries, and values the number without those of null and those that Form.DropEmpty names.
	count, values int
}

// decode returns the first entries of the array or the map: at most most.
func (l Long) decode(most int) (any, error) {
	form := *l.form
	form.most = l.count
	if l.form.kind == mapForm {
		return (&decoder{text: l.text}).entries(&form)
	}
	return (&decoder{text: l.text}).first(&form, most)
}

// first decodes the first elements of the array at the decoder's position.
func (d *decoder) first(f *Form, most int) (any, error) {
	d.open.begin(0)
	values := []any{}
	for d.at++; len(values) < most && d.next(); {
		value, err := d.value(f.element)
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		d.open.last().index++
	}
	return values, nil
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
