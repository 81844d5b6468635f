package wire

// Form describes the values of a body that are decoded. A body with values that its form does not have is refused, so that their contents are not needed:
// only their kind is decoded. The same applies to values that nobody reads. The nil Form has all values. Forms do not change and are safe for concurrent use.
type Form struct {
	kind formKind
	// fields are those of an object.
	fields map[string]field
	// element is the form of each element of a list or a map, and most the number of them that are decoded.
	element *Form
	most    int
	// dropEmpty is set for a map whose entries with the empty string do not count.
	dropEmpty bool
}

type formKind int

const (
	scalarForm formKind = iota
	objectForm
	listForm
	mapForm
	textForm
	valueTextForm
)

// field is a field of an object with the text of its name, so that decoding does not copy it.
type field struct {
	name string
	form *Form
}

// Scalar returns the form of a string, a number or a boolean, and of a value that is not read.
func Scalar() *Form { return &Form{} }

// TextOfObject returns the form of an object that is decoded later: its value is a Text.
func TextOfObject() *Form { return &Form{kind: textForm} }

// TextOfValue returns the form of a value of any kind that is decoded later: it is a Text.
func TextOfValue() *Form { return &Form{kind: valueTextForm} }

// Fields returns the form of an object by the names of its fields.
func Fields(forms map[string]*Form) *Form {
	f := &Form{kind: objectForm, fields: make(map[string]field, len(forms))}
	for name, form := range forms {
		f.fields[name] = field{name, form}
	}
	return f
}

// List returns the form of an array. Of an array with more than most elements, only the number is decoded; see Long.
func List(most int, element *Form) *Form { return &Form{kind: listForm, most: most, element: element} }

// Map returns the form of an object with any names. Of an object with more than most fields, only the number is decoded; see Long.
func Map(most int, element *Form) *Form { return &Form{kind: mapForm, most: most, element: element} }

// DropEmpty returns the form of a map whose entries with the empty string do not count.
func (f *Form) DropEmpty() *Form {
	copied := *f
	copied.dropEmpty = true
	return &copied
}

// With returns the form of an object that has more fields.
func (f *Form) With(forms map[string]*Form) *Form {
	copied := Fields(forms)
	for name, own := range f.fields {
		copied.fields[name] = own
	}
	return copied
}
