#!/bin/bash
# Each fuzz target over its kept inputs.
fuzz/run test
