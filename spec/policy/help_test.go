package policy

import (
	"io/fs"
	"os"
	"reflect"
	"testing"
)

// input is a policy file at /p, with a few variables, for a caller whose home is /home/u.
func input(name, data string) Input {
	return Input{
		Name: name, Data: []byte(data), Dir: "/p", Home: "/home/u",
		Env: map[string]string{"DATA": "/data", "REL": "sub/dir", "EMPTY": "", "BYTES": "/\xff"},
	}
}

// withFiles adds files that can be extended, by absolute path.
func withFiles(in Input, files map[string]string) Input {
	in.ReadFile = func(p string) ([]byte, error) {
		if data, ok := files[p]; ok {
			return []byte(data), nil
		}
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return in
}

func mustLoad(t *testing.T, in Input) *Policy {
	t.Helper()
	p, err := Load(in)
	if err != nil {
		t.Fatalf("%s\n%s", err, in.Data)
	}
	return p
}

// placeless removes the fields with places.
func placeless(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			placeless(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			placeless(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(v.MapIndex(k))
			placeless(item)
			v.SetMapIndex(k, item)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name == "From" || name == "File" && v.Type() == reflect.TypeFor[Policy]() ||
				name == "Sources" || name == "Expanded" || name == "Places" || name == "Given" {
				v.Field(i).SetZero()
				continue
			}
			placeless(v.Field(i))
		}
	}
}

// samePolicy compares what two policies mean.
func samePolicy(t *testing.T, got, want *Policy) {
	t.Helper()
	placeless(reflect.ValueOf(got))
	placeless(reflect.ValueOf(want))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("policies differ:\n got %s (%+v)\nwant %s (%+v)", got.Canonical(), got, want.Canonical(), want)
	}
}

func readTestdata(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
