"""The demo classifier: EfficientNet-lite0 with real ImageNet weights, so that the demo answers with real labels."""
