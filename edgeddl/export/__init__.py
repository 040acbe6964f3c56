"""Writes a trained model for other programs: ONNX, npz of Chainer, safetensors."""
