package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// input is what both sides get: the same every time.
type input struct {
	// files are the bodies of what is delivered, in order.
	files []string
	// messages are the distinct ones among them. The others were delivered
	// again by the source.
	messages int
	// late are messages that arrive for the first time behind a newer one of
	// their key; slow, by id, those that the receiver answers too late.
	late int
	slow map[string]bool
	// want is what has to be there in the end, by entity.
	want map[string]string
}

func (in *input) redelivered() int { return len(in.files) - in.messages }

// deliver puts the files into the inbox of a directory queue.
func (in *input) deliver(inbox string) error {
	if err := os.MkdirAll(inbox, 0o755); err != nil {
		return err
	}
	for i, body := range in.files {
		if err := os.WriteFile(filepath.Join(inbox, fmt.Sprintf("%04d.json", i+1)), []byte(body), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// notice is a message of A1.
type notice struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Text     string `json:"text"`
}

func notices() input {
	const n, every, lag = 200, 16, 9
	in := input{messages: n, want: map[string]string{}, slow: map[string]bool{}}
	names := [...]string{"Amara", "Bo", "Chiara", "Dmitri", "Elif", "Farid", "Grace"}
	var all arrivals
	for i := range n {
		m := notice{ID: fmt.Sprintf("notice-%04d", i+1), Customer: names[i%len(names)], Text: fmt.Sprintf("Your parcel %d has arrived.", 70211+i)}
		in.want[m.ID] = "1"
		if i%40 == 20 {
			in.slow[m.ID] = true
		}
		all.add(i, m)
		if i%every == 5 {
			all.add(i+lag, m)
		}
	}
	in.files = all.inOrder()
	return in
}

// sale is a message of A2.
type sale struct {
	Event   string `json:"event"`
	Concert string `json:"concert"`
}

func sales() input {
	const n, every, lag = 400, 17, 30
	in := input{messages: n, want: map[string]string{}}
	concerts := [...]string{"Aida", "Carmen", "Fidelio", "Norma", "Otello", "Rigoletto", "Tosca", "Turandot"}
	counts := map[string]int{}
	var all arrivals
	for i := range n {
		m := sale{Event: fmt.Sprintf("sale-%05d", i+1), Concert: concerts[i*i%31%len(concerts)]}
		counts[m.Concert]++
		all.add(i, m)
		if i%every == 7 {
			all.add(i+lag, m)
		}
	}
	for concert, count := range counts {
		in.want[concert] = strconv.Itoa(count)
	}
	in.files = all.inOrder()
	return in
}

// change is a message of A3.
type change struct {
	Event    string `json:"event"`
	Order    string `json:"order"`
	Status   string `json:"status"`
	Revision int    `json:"revision"`
}

// changes are three of each order. Of some that are cancelled, "paid" comes
// behind "cancelled": for the first time, from a slower partition, or once
// more.
func changes() input {
	const orders, apart = 100, 3
	in := input{messages: 3 * orders, want: map[string]string{}}
	var all arrivals
	for i := range orders {
		order, at := fmt.Sprintf("order-%04d", i+1), i*apart
		event := func(revision int, status string) change {
			return change{fmt.Sprintf("evt-%06d", 3*i+revision), order, status, revision}
		}
		late, again, last := i%5 == 0, i%10 == 2, "shipped"
		if i%5 == 0 || i%5 == 2 {
			last = "cancelled"
		}
		in.want[order] = last
		paid, end := event(2, "paid"), at+30
		all.add(at, event(1, "created"))
		all.add(end, event(3, last))
		if late {
			in.late++
			all.add(end+25, paid)
		} else {
			all.add(at+10, paid)
		}
		if again {
			all.add(end+20, paid)
		}
	}
	in.files = all.inOrder()
	return in
}

// arrivals are messages and when they arrive.
type arrivals []struct {
	at   int
	body string
}

func (a *arrivals) add(at int, m any) {
	body, err := json.Marshal(m)
	if err != nil {
		panic(err) // of strings and numbers: cannot be
	}
	*a = append(*a, struct {
		at   int
		body string
	}{at, string(body)})
}

func (a arrivals) inOrder() []string {
	slices.SortStableFunc(a, func(x, y struct {
		at   int
		body string
	}) int {
		return cmp.Compare(x.at, y.at)
	})
	files := make([]string, len(a))
	for i := range a {
		files[i] = a[i].body
	}
	return files
}
