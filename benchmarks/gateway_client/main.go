// Load for a RocketMQ endpoint with the official Go client; told what to do by its arguments:
//
//	ENDPOINT TOPIC send CALLERS SECONDS SIZE
//	ENDPOINT TOPIC consume CALLERS SECONDS GROUP
//
// Prints one line of JSON: how many, in how many seconds, and the times of single calls.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

func main() {
	endpoint, topic, mode := os.Args[1], os.Args[2], os.Args[3]
	callers, _ := strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	rmq.ResetLogger()
	config := &rmq.Config{Endpoint: endpoint, Credentials: &credentials.SessionCredentials{}}
	var step func() (int, error)
	if mode == "send" {
		size, _ := strconv.Atoi(os.Args[6])
		body := make([]byte, size)
		producer, err := rmq.NewProducer(config, rmq.WithTopics(topic))
		check(err)
		check(producer.Start())
		step = func() (int, error) {
			_, err := producer.Send(context.Background(), &rmq.Message{Topic: topic, Body: body})
			return 1, err
		}
	} else {
		config.ConsumerGroup = os.Args[6]
		all := map[string]*rmq.FilterExpression{topic: rmq.SUB_ALL}
		consumer, err := rmq.NewSimpleConsumer(config, rmq.WithSimpleAwaitDuration(time.Second), rmq.WithSimpleSubscriptionExpressions(all))
		check(err)
		check(consumer.Start())
		step = func() (int, error) {
			found, err := consumer.Receive(context.Background(), 32, time.Minute)
			if err != nil && strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
				return 0, nil
			}
			if err != nil {
				return 0, err
			}
			for _, one := range found {
				if err := consumer.Ack(context.Background(), one); err != nil {
					return 0, err
				}
			}
			return len(found), nil
		}
	}
	fmt.Println("ready")
	var started sync.WaitGroup
	var done, failed atomic.Int64
	times := make([][]float64, callers)
	begin := time.Now()
	until := begin.Add(time.Duration(seconds * float64(time.Second)))
	for at := 0; at < callers; at++ {
		started.Add(1)
		go func(at int) {
			defer started.Done()
			for time.Now().Before(until) {
				from := time.Now()
				count, err := step()
				if err != nil {
					failed.Add(1)
					fmt.Fprintln(os.Stderr, err)
					continue
				}
				done.Add(int64(count))
				times[at] = append(times[at], float64(time.Since(from).Microseconds())/1000)
			}
		}(at)
	}
	started.Wait()
	took := time.Since(begin).Seconds()
	var all []float64
	for _, some := range times {
		all = append(all, some...)
	}
	sort.Float64s(all)
	part := func(share float64) float64 {
		if len(all) == 0 {
			return 0
		}
		return all[int(share*float64(len(all)-1))]
	}
	line, _ := json.Marshal(map[string]any{
		"count": done.Load(), "failed": failed.Load(), "seconds": took,
		"p50_ms": part(0.5), "p99_ms": part(0.99),
	})
	fmt.Println(string(line))
	os.Exit(0)
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
