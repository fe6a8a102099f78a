"""What the library costs on the device at hand, beside what others would pay; `entrec bench NAME` measures it."""
