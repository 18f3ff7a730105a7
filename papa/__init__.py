"""PAPA: how much does a pretrained Transformer encoder really use its attention?"""
