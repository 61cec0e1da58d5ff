// What gomemcache, the client of Go's programs, does with a server: each of its calls and what it has to return, then many clients at once with a few
// keys each. It prints how many calls were right, or what was wrong.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

const (
	clients = 8
	rounds  = 400
)

var (
	calls int
	lock  sync.Mutex
)

// expect ends the program if a call did not return what it has to.
func expect(what string, right bool, got any) {
	if !right {
		fmt.Printf("%s: %v\n", what, got)
		os.Exit(1)
	}
	lock.Lock()
	calls++
	lock.Unlock()
}

func is(what string, err, wanted error) {
	expect(what, errors.Is(err, wanted), err)
}

func each(c *memcache.Client) {
	is("ping", c.Ping(), nil)
	is("flush_all", c.FlushAll(), nil)
	_, err := c.Get("none")
	is("get of nothing", err, memcache.ErrCacheMiss)
	is("set", c.Set(&memcache.Item{Key: "key", Value: []byte("value"), Flags: 7}), nil)
	item, err := c.Get("key")
	is("get", err, nil)
	expect("value", string(item.Value) == "value" && item.Flags == 7, item)
	is("add to what is there", c.Add(&memcache.Item{Key: "key", Value: []byte("x")}), memcache.ErrNotStored)
	is("add", c.Add(&memcache.Item{Key: "other", Value: []byte("b")}), nil)
	is("replace nothing", c.Replace(&memcache.Item{Key: "none", Value: []byte("x")}), memcache.ErrNotStored)
	is("append", c.Append(&memcache.Item{Key: "other", Value: []byte("c")}), nil)
	is("prepend", c.Prepend(&memcache.Item{Key: "other", Value: []byte("a")}), nil)
	items, err := c.GetMulti([]string{"key", "none", "other"})
	is("get of several", err, nil)
	expect("values", len(items) == 2 && string(items["other"].Value) == "abc", items)
	item.Value = []byte("changed")
	is("cas", c.CompareAndSwap(item), nil)
	is("cas of what has changed", c.CompareAndSwap(item), memcache.ErrCASConflict)
	is("set a number", c.Set(&memcache.Item{Key: "number", Value: []byte("41")}), nil)
	number, err := c.Increment("number", 2)
	is("increment", err, nil)
	expect("number", number == 43, number)
	number, err = c.Decrement("number", 50)
	is("decrement", err, nil)
	expect("number", number == 0, number)
	_, err = c.Increment("none", 1)
	is("increment nothing", err, memcache.ErrCacheMiss)
	is("touch", c.Touch("key", 60), nil)
	is("touch nothing", c.Touch("none", 60), memcache.ErrCacheMiss)
	item, err = c.GetAndTouch("key", 60)
	is("gat", err, nil)
	expect("value", string(item.Value) == "changed", item)
	is("delete", c.Delete("key"), nil)
	is("delete nothing", c.Delete("key"), memcache.ErrCacheMiss)
	large := bytes.Repeat([]byte("large"), 100_000)
	is("set a large value", c.Set(&memcache.Item{Key: "large", Value: large}), nil)
	item, err = c.Get("large")
	is("get a large value", err, nil)
	expect("large value", bytes.Equal(item.Value, large), len(item.Value))
}

func main() {
	if len(os.Args) != 2 {
		fmt.Println("usage: gomemcache ADDRESS:PORT")
		os.Exit(2)
	}
	new := func() *memcache.Client {
		c := memcache.New(os.Args[1])
		c.Timeout = time.Minute
		return c
	}
	each(new())
	var all sync.WaitGroup
	for n := 0; n < clients; n++ {
		all.Add(1)
		go func(n int) {
			defer all.Done()
			c := new()
			key := fmt.Sprintf("client%d", n)
			for round := 0; round < rounds; round++ {
				value := []byte(fmt.Sprintf("%d of %d", round, n))
				is("set", c.Set(&memcache.Item{Key: key, Value: value}), nil)
				item, err := c.Get(key)
				is("get", err, nil)
				expect("value", bytes.Equal(item.Value, value), item)
			}
		}(n)
	}
	all.Wait()
	fmt.Println(calls, "right")
}
